//! A process that goes on when its task, and the agent, have ended. It is found by its number and the time of its
//! start, and before these were noted by a mark in its environment.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hpc_schema::task::HostPath;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::{Act, EffectError, Mark, Note, Scene, Seen, Trace};
use crate::files::at;
use crate::task::host::Host;

/// Names the effect in the environment of what it starts.
pub const MARK: &str = "VIRTENGINE_TASK";
/// How long a killed process may take to go.
const KILLED: Duration = Duration::from_secs(10);

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
        let pid = spawn(self, scene.mark)?;
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
pub fn spawn(process: &Process, mark: &Mark) -> Result<u32, EffectError> {
    let program = Path::new(process.program.as_str());
    let mut command = Command::new(program);
    command
        .args(&process.arguments)
        .env_clear()
        .envs(&process.environment)
        .env(MARK, mark.to_string())
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

/// Clock ticks after boot at which the process was started; none if it is gone or a zombie.
#[must_use]
pub fn start_of(host: &Host, pid: u32) -> Option<u64> {
    started(&host.roots.proc, pid)
}

/// The same, in any tree of processes.
#[must_use]
pub fn started(proc: &Path, pid: u32) -> Option<u64> {
    let path = proc.join(pid.to_string()).join("stat");
    let text = crate::files::read_text(&path, 4096).ok()?;
    // The name in brackets may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Processes that carry the mark, or a thread of whose parents did: number and start.
///
/// # Errors
/// If processes cannot be listed.
pub fn find_marked(host: &Host, mark: &Mark) -> Result<Vec<(u32, u64)>, EffectError> {
    let wanted = format!("{MARK}={mark}");
    let folder = std::fs::read_dir(&host.roots.proc).map_err(at("read", &host.roots.proc))?;
    let mut found = Vec::new();
    for entry in folder.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        // Gone meanwhile, or of the kernel.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        if environment.split(|b| *b == 0).any(|e| e == wanted.as_bytes())
            && let Some(start) = start_of(host, pid)
        {
            found.push((pid, start));
        }
    }
    Ok(found)
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

/// Whether this very process lives.
#[must_use]
pub fn is_alive(host: &Host, pid: u32, start: u64) -> bool {
    start_of(host, pid) == Some(start)
}

/// Asks a process to end, and ends it by force after `grace`.
///
/// # Errors
/// [`EffectError::Unknown`] if it cannot be signalled, or hangs in the kernel.
pub fn end(host: &Host, pid: u32, start: u64, grace: Duration) -> Result<(), EffectError> {
    let unknown = |what: &str| EffectError::Unknown(format!("process {pid} {what}"));
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Err(unknown("has no number that a process can have"));
    };
    let handle = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(e) => return Err(unknown(&format!("cannot be opened: {e}"))),
    };
    // The handle is of whoever has the number now; the start tells whether that is the one.
    if !is_alive(host, pid, start) {
        return Ok(());
    }
    for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, KILLED)] {
        match pidfd_send_signal(&handle, signal) {
            Ok(()) => {}
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(e) => return Err(unknown(&format!("cannot be signalled: {e}"))),
        }
        if gone_within(host, pid, start, patience) {
            return Ok(());
        }
    }
    Err(unknown("was killed and does not end; it hangs in the kernel"))
}

/// Asks this very process to end, and does not wait.
pub fn ask(host: &Host, pid: u32, start: u64) {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let handle = raw.and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
    if let Some(handle) = handle.filter(|_| is_alive(host, pid, start)) {
        // Gone already: as good as asked.
        pidfd_send_signal(&handle, Signal::TERM).ok();
    }
}

/// Whether it goes in time.
#[must_use]
pub fn gone_within(host: &Host, pid: u32, start: u64, patience: Duration) -> bool {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if !is_alive(host, pid, start) {
            return true;
        }
        if begun.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(pause);
        pause = pause.saturating_mul(2).min(Duration::from_millis(50));
    }
}
