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

/// Processes of this user that carry the mark, or a thread of whose parents did: number and start. Anybody can give a
/// process any environment; the mark of another user's process is none.
///
/// # Errors
/// If processes cannot be listed.
pub fn find_marked(host: &Host, mark: &Mark) -> Result<Vec<(u32, u64)>, EffectError> {
    find_marked_of(host, mark, None)
}

/// The same, with those of the user that the effect's process runs as.
///
/// # Errors
/// As [`find_marked`].
pub fn find_marked_of(host: &Host, mark: &Mark, user: Option<u32>) -> Result<Vec<(u32, u64)>, EffectError> {
    let ours = [Some(rustix::process::geteuid().as_raw()), user];
    let (wanted, may) = (mark.to_string(), |uid: u32| ours.contains(&Some(uid)));
    let (mut found, instance) = (marks(host, &may)?, host.dir.instance());
    // Another task domain here, of another cluster, may have a task of the same name. What an earlier version started
    // says no domain.
    found.retain(|m| m.mark == wanted && m.instance.as_ref().is_none_or(|i| *i == instance));
    Ok(found.into_iter().map(|m| (m.pid, m.start)).collect())
}

/// A process that carries a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// Its number.
    pub pid: u32,
    /// Clock ticks after boot.
    pub start: u64,
    /// `task/step`.
    pub mark: String,
    /// Which task domain has started it.
    pub instance: Option<String>,
}

/// Every process with a mark, all of whose ids `may` carry one.
///
/// # Errors
/// If processes cannot be listed.
pub fn marks(host: &Host, may: &dyn Fn(u32) -> bool) -> Result<Vec<Marked>, EffectError> {
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
        let value = |name: &str| {
            let mut all = environment.split(|b| *b == 0);
            let value = all.find_map(|e| e.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        if let Some(mark) = value(MARK)
            && ids_of(&entry.path()).is_some_and(|ids| ids.iter().all(|id| may(*id)))
            && let Some(start) = start_of(host, pid)
        {
            found.push(Marked {
                pid,
                start,
                mark,
                instance: value(INSTANCE),
            });
        }
    }
    Ok(found)
}

/// The four user ids of a process: real, effective, saved, of the file system. All of them count: a program with rights
/// of its owner runs with the environment of whoever started it.
fn ids_of(process: &Path) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    let ids: Vec<u32> = line
        .split_ascii_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    (ids.len() == 4).then_some(ids)
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

/// Ends every process that carries the mark: what was started for an effect in whose midst the agent was killed. How many
/// there were.
///
/// # Errors
/// As [`end`].
pub(super) fn end_marked(scene: Scene<'_>) -> Result<usize, EffectError> {
    let found = find_marked(scene.host, scene.mark)?;
    for (pid, start) in &found {
        end(scene.host, *pid, *start, Duration::from_secs(2))?;
    }
    Ok(found.len())
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

/// Stops this very process where it is.
///
/// # Errors
/// [`EffectError::Unknown`] if it cannot be signalled.
pub fn pause(host: &Host, pid: u32, start: u64) -> Result<(), EffectError> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let handle = raw.and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
    match handle.filter(|_| is_alive(host, pid, start)) {
        Some(handle) => pidfd_send_signal(&handle, Signal::STOP)
            .map_err(|e| EffectError::Unknown(format!("process {pid} cannot be stopped: {e}"))),
        None => Ok(()),
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
