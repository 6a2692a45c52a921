//! QEMU, and the control group that it is in. It is paused when this is done: nothing of a guest has run that is not
//! written down.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hpc_schema::task::HostPath;
use serde::{Deserialize, Serialize};

use super::process::{MARK, end, find_marked, is_alive, start_of};
use super::{Act, EffectError, Note, Scene, Seen, Trace};
use crate::files::{Owner, at, read_text};
use crate::machine::cgroup::{Group, Limits};
use crate::task::failure::Failure;

/// How long QEMU may take to set itself up.
const SETUP: Duration = Duration::from_secs(60);
/// How long it may take to end when it is told to; its guest has been asked before.
const END: Duration = Duration::from_secs(2);
/// What is kept of its last words.
const WORDS: u64 = 4096;

/// A virtual machine's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// QEMU.
    pub program: HostPath,
    /// Its arguments, by our code and checked values: it goes into the background and leaves its number in `pid_file`.
    pub arguments: Vec<String>,
    /// Where it leaves its number.
    pub pid_file: HostPath,
    /// Where it leaves its last words if it cannot start.
    pub words: HostPath,
    /// User and group that it runs as; absent: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<(u32, u32)>,
    /// Mount point of the control groups.
    pub cgroups: HostPath,
    /// Name of its control group.
    pub group: String,
    /// Bytes of memory that it may take.
    pub memory: u64,
    /// Hundredths of a processor that it may take.
    pub cpu: u32,
}

/// Folder of our control groups, below each hierarchy.
const PARENT: &str = "virtengine-machines";
/// Threads of QEMU: one a processor, and those that do its IO.
const PIDS: u32 = 512;

impl Machine {
    /// Its control group.
    #[must_use]
    pub fn cgroup(&self) -> Group {
        Group::new(Path::new(self.cgroups.as_str()), PARENT, &self.group)
    }

    /// Starts it, and waits until it has gone into the background.
    fn start(&self, scene: Scene<'_>) -> Result<(), EffectError> {
        let program = Path::new(self.program.as_str());
        let words = PathBuf::from(self.words.as_str());
        let log = std::fs::File::create_new(&words).map_err(at("make", &words))?;
        let mut command = Command::new(program);
        command
            .args(&self.arguments)
            .env_clear()
            .env(MARK, scene.mark.to_string())
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        let mut child = command.spawn().map_err(at("start", program))?;
        let limit = Instant::now().checked_add(SETUP);
        loop {
            match child.try_wait().map_err(at("wait for", program))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let said = read_text(&words, WORDS).unwrap_or_default();
                    let what = format!("{} did not start ({status}): {}", program.display(), said.trim());
                    return Err(EffectError::Stopped(Failure::failed(what)));
                }
                None => {}
            }
            let late = limit.is_none_or(|l| Instant::now() >= l);
            let stopped = scene.stop.check();
            if late || stopped.is_err() {
                child.kill().ok();
                child.wait().map_err(at("wait for", program))?;
                let what = format!("{} was not up within {SETUP:?}", program.display());
                return Err(EffectError::Stopped(stopped.err().unwrap_or_else(|| Failure::failed(what))));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number that QEMU left, if it is that of a process with our mark.
    fn number(&self, scene: Scene<'_>) -> Result<(u32, u64), EffectError> {
        let path = Path::new(self.pid_file.as_str());
        let pid = read_text(path, 32)?.trim().parse::<u32>().ok();
        let marked = find_marked(scene.host, scene.mark)?;
        let found = marked.into_iter().find(|(p, _)| Some(*p) == pid);
        found.ok_or_else(|| EffectError::Stopped(Failure::failed("QEMU ended as soon as it was started")))
    }

    fn all(scene: Scene<'_>, trace: Option<&Trace>) -> Result<Vec<(u32, u64)>, EffectError> {
        let mut found = find_marked(scene.host, scene.mark)?;
        if let Some(Trace::Process { pid, start }) = trace
            && is_alive(scene.host, *pid, *start)
            && !found.contains(&(*pid, *start))
        {
            found.push((*pid, *start));
        }
        Ok(found)
    }
}

impl Act for Machine {
    fn apply(&self, scene: Scene<'_>, note: &mut Note<'_>) -> Result<(), EffectError> {
        let group = self.cgroup();
        if group.exists() {
            return Err(EffectError::Busy(format!("the control group {} exists already", self.group)));
        }
        self.start(scene)?;
        let (pid, start) = self.number(scene)?;
        note(Trace::Process { pid, start })?;
        group.make(Limits {
            memory: self.memory,
            cpu: self.cpu,
            pids: PIDS,
        });
        group.admit(pid).map_err(at("admit to", Path::new(&self.group)))?;
        Ok(())
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        // One that was being started when the agent was killed is its own parent's child still: twice.
        for _ in 0..2 {
            for (pid, start) in Self::all(scene, trace)? {
                end(scene.host, pid, start, END)?;
            }
        }
        let group = self.cgroup();
        group.remove().map_err(|e| EffectError::Unknown(format!("control group {}: {e}", self.group)))
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        let lives = match trace {
            Some(Trace::Process { pid, start }) => start_of(scene.host, *pid) == Some(*start),
            _ => !Self::all(scene, trace)?.is_empty(),
        };
        Ok(if lives || self.cgroup().exists() { Seen::Ours } else { Seen::Absent })
    }

    fn shown(&self) -> String {
        format!("machine {}", self.group)
    }
}

/// User and group as a machine keeps them.
#[must_use]
pub fn ids(owner: Option<Owner>) -> Option<(u32, u32)> {
    owner.map(|o| (o.uid, o.gid))
}
