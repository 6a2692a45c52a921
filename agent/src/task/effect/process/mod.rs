//! A process that goes on when its task, and the agent, have ended. It is found by its number and the time of its
//! start, and before these were noted by a mark in its environment.

mod end;
mod find;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hpc_schema::task::HostPath;
use serde::{Deserialize, Serialize};

pub(super) use end::end_marked;
pub use end::{ask, end, gone_within, pause};
pub use find::{Marked, find_marked, find_marked_of, is_alive, marks, start_of, started};

use super::{Act, EffectError, Mark, Note, Scene, Seen, Trace};
use crate::files::at;
use crate::task::exec::Program;
use crate::task::host::Host;

/// Names the effect in the environment of what it starts.
pub const MARK: &str = "VIRTENGINE_TASK";
/// Names the task domain beside it.
pub const INSTANCE: &str = "VIRTENGINE_TASKS";

impl Program {
    /// Carries the effect's mark while it runs.
    #[must_use]
    pub(super) fn marked(self, scene: Scene<'_>) -> Self {
        self.with(MARK, scene.mark.to_string())
            .with(INSTANCE, scene.host.dir.instance())
    }
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The program.
    pub program: HostPath,
    /// Its arguments, by our code and checked values. Everybody on the host can read them.
    pub arguments: Vec<String>,
    /// Its environment beside the mark.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Where its output goes; absent: nowhere.
    #[serde(default)]
    pub log: Option<HostPath>,
    /// Seconds between the request to end and the end by force.
    pub grace_seconds: u64,
}

impl Act for Process {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let pid = spawn(self, scene)?;
        match start_of(scene.host, pid) {
            Some(start) => note(Trace::Process { pid, start }),
            None => Err(EffectError::Unknown(format!(
                "{} ended as soon as it was started",
                self.program
            ))),
        }
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        let grace = Duration::from_secs(self.grace_seconds);
        for (pid, start) in all(scene.host, scene.mark, trace)? {
            end(scene.host, pid, start, grace)?;
        }
        Ok(())
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        let found = all(scene.host, scene.mark, trace)?;
        Ok(if found.is_empty() {
            Seen::Absent
        } else {
            Seen::Ours
        })
    }

    fn shown(&self) -> String {
        format!("process {}", self.program)
    }
}

/// Starts it in a process group of its own, marked; gives its number.
///
/// # Errors
/// IO.
pub fn spawn(process: &Process, scene: Scene<'_>) -> Result<u32, EffectError> {
    let program = Path::new(process.program.as_str());
    let mut command = Command::new(program);
    command
        .args(&process.arguments)
        .env_clear()
        .envs(&process.environment)
        .env(MARK, scene.mark.to_string())
        .env(INSTANCE, scene.host.dir.instance())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null());
    match &process.log {
        Some(log) => {
            let path = Path::new(log.as_str());
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
                .open(path)
                .map_err(at("open", path))?;
            let twin = file.try_clone().map_err(at("open", path))?;
            command.stdout(file).stderr(twin);
        }
        None => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    let child = command.spawn().map_err(at("start", program))?;
    let pid = child.id();
    reap(child);
    Ok(pid)
}

/// A child that ends stays a zombie until somebody asks.
pub(super) fn reap(mut child: Child) {
    let spawned = std::thread::Builder::new()
        .name("reaper".to_owned())
        .stack_size(64 << 10)
        .spawn(move || child.wait());
    if let Err(e) = spawned {
        tracing::warn!("a process that ends will not be reaped before the agent ends: {e}");
    }
}

/// The traced process if it lives, and every marked one.
fn all(host: &Host, mark: &Mark, trace: Option<&Trace>) -> Result<Vec<(u32, u64)>, EffectError> {
    let mut found = find_marked(host, mark)?;
    if let Some(Trace::Process { pid, start }) = trace
        && is_alive(host, *pid, *start)
        && !found.contains(&(*pid, *start))
    {
        found.push((*pid, *start));
    }
    Ok(found)
}
