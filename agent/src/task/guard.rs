//! Ends machines whose lease is over, whatever becomes of the task agent: a process of its own that outlives it and
//! reads its journals. It takes nothing away: that is the agent's, when it is back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::effect::process::started;
use super::effect::{Effect, Trace};
use super::host::TaskDir;
use super::journal::{Journal, Story};
use crate::files::FileError;
use crate::machine::{Lease, Moment};
use crate::probe::names_in;
use crate::state::Lock;

/// The hidden command of that process.
pub const GUARD_COMMAND: &str = "task-guard";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Looks without a machine and without a task agent before it ends.
const IDLE: u32 = 120;

/// What a journal holds for the guard.
#[derive(Debug)]
enum Watched {
    /// The task is over and has made no machine.
    Nothing,
    /// As read when the file was so long.
    Read { length: u64, machine: Option<Leased> },
}

/// A machine with its lease.
#[derive(Debug, Clone)]
struct Leased {
    pid: u32,
    start: u64,
    lease: Lease,
}

/// Watches the machines of one folder.
#[derive(Debug)]
pub struct Guard {
    dir: TaskDir,
    proc: PathBuf,
    seen: BTreeMap<String, Watched>,
}

impl Guard {
    /// Of this folder; nothing is read.
    #[must_use]
    pub fn new(dir: TaskDir, proc: &Path) -> Self {
        Self {
            dir,
            proc: proc.to_owned(),
            seen: BTreeMap::new(),
        }
    }

    /// Ends what is over; how many machines are watched.
    pub fn look(&mut self) -> usize {
        let folder = self.dir.journal();
        let names: Vec<String> = names_in(&folder)
            .into_iter()
            .filter(|n| n.ends_with(".log"))
            .collect();
        self.seen.retain(|name, _| names.contains(name));
        for name in names {
            let path = folder.join(&name);
            let Ok(length) = std::fs::metadata(&path).map(|m| m.len()) else {
                continue;
            };
            let known = match self.seen.get(&name) {
                Some(Watched::Nothing) => true,
                Some(Watched::Read { length: before, .. }) => *before == length,
                None => false,
            };
            // What cannot be read now may be in a moment; what was read before counts until then.
            if !known && let Ok(Some(journal)) = Journal::open(&path, false) {
                let machine = leased(journal.story());
                let over = journal.story().ended.is_some() && machine.is_none();
                let watched = if over {
                    Watched::Nothing
                } else {
                    Watched::Read { length, machine }
                };
                self.seen.insert(name, watched);
            }
        }
        let Ok(now) = Moment::now(&self.proc) else {
            return self.seen.len();
        };
        let mut watched = 0usize;
        for seen in self.seen.values() {
            let Watched::Read { machine: Some(m), .. } = seen else {
                continue;
            };
            if started(&self.proc, m.pid) != Some(m.start) {
                continue;
            }
            watched = watched.saturating_add(1);
            if m.lease.left(&now).is_zero() {
                self.kill(m);
            }
        }
        watched
    }

    fn kill(&self, machine: &Leased) {
        let pid = i32::try_from(machine.pid).ok().and_then(Pid::from_raw);
        let handle = pid.and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        // The handle is of whoever has the number now; the start tells whether that is the one.
        let handle = handle.filter(|_| started(&self.proc, machine.pid) == Some(machine.start));
        if let Some(handle) = handle
            && let Err(e) = pidfd_send_signal(&handle, Signal::KILL)
        {
            tracing::error!(
                pid = machine.pid,
                "a machine whose lease has ended cannot be killed: {e}"
            );
        }
    }

    /// Watches, until there is nothing to watch and no task agent. Gives way to one that watches already.
    ///
    /// # Errors
    /// IO of the lock.
    pub fn serve(mut self) -> Result<(), FileError> {
        let Some(_lock) = Lock::take_at(&self.dir.guard())? else {
            return Ok(());
        };
        let mut idle = 0u32;
        while idle < IDLE {
            let needed = self.look() > 0 || Lock::is_held_at(&self.dir.lock());
            idle = if needed { 0 } else { idle.saturating_add(1) };
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// The machine that a task has made and that is not undone; its lease is on record before its guest runs.
fn leased(story: &Story) -> Option<Leased> {
    let lease = serde_json::from_value(story.facts.get("lease")?.clone()).ok()?;
    story
        .steps
        .iter()
        .filter(|s| s.remains())
        .find_map(|s| match (&s.effect, &s.trace) {
            (Effect::Machine(_), Some(Trace::Process { pid, start })) => Some(Leased {
                pid: *pid,
                start: *start,
                lease: Lease::clone(&lease),
            }),
            _ => None,
        })
}

/// Keeps a guard running as long as this process does; the guard goes on without it.
pub(super) fn keep(program: PathBuf, dir: TaskDir) {
    let keeper = move || {
        loop {
            if !Lock::is_held_at(&dir.guard()) {
                let mut command = Command::new(&program);
                command
                    .arg(GUARD_COMMAND)
                    .arg(dir.path())
                    .env_clear()
                    .current_dir("/");
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                match command.spawn().and_then(|mut c| c.wait()) {
                    Ok(status) => {
                        tracing::warn!("the guard of leases has ended ({status}); it is started anew");
                    }
                    Err(e) => tracing::error!("the guard of leases cannot be started: {e}"),
                }
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    };
    if let Err(e) = std::thread::Builder::new().name("guard".to_owned()).spawn(keeper) {
        tracing::error!("leases are not guarded while the task agent is down: {e}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use serde_json::json;

    use super::*;
    use crate::task::effect::Machine;
    use crate::task::effect::process::started;
    use crate::task::journal::Record;
    use crate::task::tests::bench;

    #[test]
    fn a_machine_is_killed_at_the_end_of_its_lease_by_what_the_journal_says_alone() {
        let dir = tempfile::tempdir().unwrap();
        let tasks = TaskDir::new(&dir.path().join("t"));
        tasks.create().unwrap();
        let proc = Path::new("/proc");
        let task = bench::launch(&bench::Site::new(), "task-1", "vm-1");
        let mut child = Command::new("/bin/sleep").arg("300").spawn().unwrap();
        let start = started(proc, child.id()).unwrap();
        let taken = Record::Taken {
            task: task.clone(),
            hash: String::new(),
            at: 1,
            owner: None,
        };
        let mut journal = Journal::create(&tasks.journal(), &task.task_id, taken).unwrap();
        let machine = Machine {
            program: bench::path("/bin/sleep"),
            arguments: Vec::new(),
            control: bench::path("/nowhere/control"),
            user: None,
            cgroups: bench::path("/nowhere"),
            group: "vm-1".to_owned(),
            memory: 1,
            cpu: 1,
        };
        let effect = Effect::Machine(machine);
        journal.add(Record::Intent { step: 0, effect }).unwrap();
        let trace = Trace::Process {
            pid: child.id(),
            start,
        };
        journal.add(Record::Made { step: 0, trace }).unwrap();
        let mut guard = Guard::new(tasks, proc);
        assert_eq!(guard.look(), 0, "without a lease it has not begun to run");
        let mut now = Moment::now(proc).unwrap();
        let fact = |lease: &Lease| Record::Fact {
            name: "lease".to_owned(),
            value: json!(lease),
        };
        journal.add(fact(&Lease::from(&now, 600))).unwrap();
        assert_eq!(guard.look(), 1);
        assert!(child.try_wait().unwrap().is_none());
        now.boot_ms = 0;
        journal.add(fact(&Lease::from(&now, 1))).unwrap();
        guard.look();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(guard.look(), 0);
    }
}
