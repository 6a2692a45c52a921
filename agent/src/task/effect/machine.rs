//! QEMU, and the control group that it is in. It is paused when this is done: nothing of a guest has run that is not
//! written down.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hpc_schema::task::HostPath;
use serde::{Deserialize, Serialize};

use super::process::{INSTANCE, MARK, end, find_marked_of, is_alive, reap, start_of};
use super::{Act, EffectError, Mark, Note, Scene, Seen, Trace};
use crate::files::{Owner, at};
use crate::machine::cgroup::{Group, Limits, MACHINES};
use crate::machine::qmp::Qmp;
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::jail::Jail;
use crate::task::start::{self, Gate};

/// How long QEMU may take to set itself up.
const SETUP: Duration = Duration::from_secs(60);
/// How long its monitor may take for the greeting.
const ANSWER: Duration = Duration::from_secs(2);
/// How long it may take to end when it is told to; its guest has been asked before.
const END: Duration = Duration::from_secs(2);
/// What is kept of its last words.
const WORDS: usize = 4096;

/// A virtual machine's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// QEMU.
    pub program: HostPath,
    /// Its arguments, by our code and checked values; it starts paused.
    pub arguments: Vec<String>,
    /// The socket of its monitor: it is up when that answers.
    pub control: HostPath,
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

/// Threads of QEMU: one a processor, and those that do its IO.
const PIDS: u32 = 512;

impl Machine {
    /// Its control group.
    #[must_use]
    pub fn cgroup(&self) -> Group {
        Group::new(Path::new(self.cgroups.as_str()), MACHINES, &self.group)
    }

    /// The control group of the machine of that name.
    #[must_use]
    pub fn group_of(sys: &Path, name: &str) -> Group {
        Group::new(&sys.join("fs/cgroup"), MACHINES, name)
    }

    /// Its processes by their mark.
    ///
    /// # Errors
    /// If processes cannot be listed.
    pub fn marked(&self, host: &Host, mark: &Mark) -> Result<Vec<(u32, u64)>, EffectError> {
        find_marked_of(host, mark, self.user.map(|(uid, _)| uid))
    }

    /// Controllers that hold this process of it, with the limits that were set: read back.
    #[must_use]
    pub fn limited_by(&self, pid: u32) -> Vec<String> {
        let holding = self.cgroup().holding(self.limits(), pid);
        holding.into_iter().map(str::to_owned).collect()
    }

    fn limits(&self) -> Limits {
        Limits {
            memory: self.memory,
            cpu: self.cpu,
            pids: PIDS,
        }
    }

    fn spawn(&self, scene: Scene<'_>) -> Result<(Child, Gate), EffectError> {
        let program = Path::new(self.program.as_str());
        let (mut command, gate) = start::command(program, false).map_err(at("start", program))?;
        command
            .args(&self.arguments)
            .env_clear()
            .env(MARK, scene.mark.to_string())
            .env(INSTANCE, scene.host.dir.instance())
            .current_dir("/")
            .process_group(0)
            .stdin(gate.input())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        // It writes into its own folder, and nowhere else.
        let folder = Path::new(self.control.as_str()).ancestors().nth(2);
        let jail = Jail::Machine(folder.unwrap_or(Path::new("/nonexistent")).to_owned());
        let child = jail.spawn(&mut command).map_err(at("start", program))?;
        Ok((child, gate))
    }

    /// Waits until its monitor answers.
    fn up(&self, scene: Scene<'_>, child: &mut Child, words: &Words) -> Result<(), EffectError> {
        let failed = |what: String| {
            let said =
                String::from_utf8_lossy(&words.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
            EffectError::Stopped(Failure::failed(format!(
                "{} {what}: {}",
                self.program,
                said.trim()
            )))
        };
        let limit = Instant::now().checked_add(SETUP);
        loop {
            let program = Path::new(self.program.as_str());
            if let Some(status) = child.try_wait().map_err(at("wait for", program))? {
                // Its last words come after it.
                std::thread::sleep(Duration::from_millis(50));
                return Err(failed(format!("did not start ({status})")));
            }
            match Qmp::connect(Path::new(self.control.as_str()), ANSWER) {
                Ok(_) => return Ok(()),
                Err(e) if limit.is_none_or(|l| Instant::now() >= l) => {
                    return Err(failed(format!("was not up within {SETUP:?} ({e})")));
                }
                Err(_) => {}
            }
            scene.stop.check().map_err(EffectError::Stopped)?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn all(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Vec<(u32, u64)>, EffectError> {
        let mut found = self.marked(scene.host, scene.mark)?;
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
            return Err(EffectError::Busy(format!(
                "the control group {} exists already",
                self.group
            )));
        }
        let (mut child, gate) = self.spawn(scene)?;
        let pid = child.id();
        let words = listen(&mut child);
        // A zombie as yet, if it is gone already: `up` tells what it said.
        let Some(start) = start_of(scene.host, pid) else {
            let up = self.up(scene, &mut child, &words);
            reap(child);
            up?;
            return Err(EffectError::Unknown(
                "QEMU was gone before it could be put on record".to_owned(),
            ));
        };
        note(Trace::Process { pid, start })?;
        group.make(self.limits());
        let input = child.stdin.take();
        if let Err(e) = group.admit(pid) {
            drop(input);
            reap(child);
            return Err(at("admit to", Path::new(&self.group))(e).into());
        }
        // It is on record and in its group: only now it becomes QEMU. If it is gone, `up` tells what it said.
        input.map(|mut input| gate.open(&mut input));
        let up = self.up(scene, &mut child, &words);
        reap(child);
        up
    }

    fn undo(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<(), EffectError> {
        for (pid, start) in self.all(scene, trace)? {
            end(scene.host, pid, start, END)?;
        }
        // The group is made once the process is on record: without it, a group of this name is another's.
        if trace.is_none() {
            return Ok(());
        }
        let group = self.cgroup();
        group
            .remove()
            .map_err(|e| EffectError::Unknown(format!("control group {}: {e}", self.group)))
    }

    fn observe(&self, scene: Scene<'_>, trace: Option<&Trace>) -> Result<Seen, EffectError> {
        let lives = match trace {
            Some(Trace::Process { pid, start }) => start_of(scene.host, *pid) == Some(*start),
            _ => !self.all(scene, trace)?.is_empty(),
        };
        Ok(if lives || (trace.is_some() && self.cgroup().exists()) {
            Seen::Ours
        } else {
            Seen::Absent
        })
    }

    fn shown(&self) -> String {
        format!("machine {}", self.group)
    }
}

type Words = Arc<Mutex<Vec<u8>>>;

/// Keeps the beginning of what it says, and lets it say the rest: a guest can make QEMU talk for ever.
fn listen(child: &mut Child) -> Words {
    let words = Words::default();
    let (kept, stderr) = (Arc::clone(&words), child.stderr.take());
    let listener = move || {
        let Some(mut stderr) = stderr else { return };
        let mut buffer = [0u8; 1024];
        loop {
            match stderr.read(&mut buffer) {
                Ok(0) => return,
                Ok(n) => {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = WORDS.saturating_sub(kept.len());
                    kept.extend(buffer.iter().take(n.min(room)));
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("qemu-words".to_owned())
        .stack_size(64 << 10);
    if let Err(e) = thread.spawn(listener) {
        tracing::warn!("what QEMU says is not heard: {e}");
    }
    words
}

/// User and group as a machine keeps them.
#[must_use]
pub fn ids(owner: Option<Owner>) -> Option<(u32, u32)> {
    owner.map(|o| (o.uid, o.gid))
}
