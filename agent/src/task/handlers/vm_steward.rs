//! Looks after machines: notices at once that one has ended, ends those whose lease is over whatever the gateway says,
//! and takes up those that ran before the agent was started again.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hpc_schema::id::TaskId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::vm_launch::KIND;
use super::vm_terminate::{lease_left, press, process};
use crate::machine::Folder;
use crate::machine::qmp::Qmp;
use crate::task::effect::process::is_alive;
use crate::task::host::Host;
use crate::task::ledger::{Holding, Ledger};
use crate::task::owner::Owner;
use crate::task::steward::Steward;

/// Between two looks at leases; the end of a machine is not waited for, it wakes.
const LOOK: Duration = Duration::from_millis(500);
/// A machine is asked to shut down so long before the end of its lease: at the end it is gone.
const GRACE: Duration = Duration::from_secs(15);
/// What could not be taken away is tried again after this, and then after twice as long each time.
const FIRST: Duration = Duration::from_secs(2);
/// At most after this.
const LONGEST: Duration = Duration::from_secs(30);
/// How long a monitor may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks after machines.
#[derive(Debug, Default)]
pub(super) struct VmSteward {
    watched: BTreeMap<Owner, Watched>,
}

#[derive(Debug)]
struct Watched {
    task_id: TaskId,
    process: (u32, u64),
    folder: Option<Folder>,
    /// Readable when it has ended.
    handle: Option<OwnedFd>,
    events: Option<Qmp>,
    /// What the guest, or QEMU, said of the end.
    said: Option<String>,
    asked: bool,
    retry: Option<Instant>,
    /// Before the next try.
    pause: Duration,
}

impl Steward for VmSteward {
    fn name(&self) -> &'static str {
        "machines"
    }

    fn look(&mut self, host: &Host, ledger: &Arc<Ledger>) -> Duration {
        let held = ledger.held(KIND);
        self.watched
            .retain(|owner, w| held.iter().any(|h| h.owner == *owner && h.task_id == w.task_id));
        for holding in &held {
            if !self.watched.contains_key(&holding.owner)
                && let Some(watched) = Watched::adopt(host, holding)
            {
                self.watched.insert(holding.owner.clone(), watched);
            }
        }
        if self.watched.is_empty() {
            return LOOK;
        }
        self.wait();
        for holding in &held {
            if let Some(watched) = self.watched.get_mut(&holding.owner)
                && let Some(why) = watched.over(host, holding)
            {
                watched.end(host, ledger, &holding.owner, &why);
            }
        }
        Duration::ZERO
    }
}

impl VmSteward {
    /// Until a machine ends, or the next look is due.
    fn wait(&self) {
        let mut fds: Vec<PollFd<'_>> = self
            .watched
            .values()
            // One that could not be taken away would wake us for ever.
            .filter(|w| w.retry.is_none())
            .filter_map(|w| Some(PollFd::new(w.handle.as_ref()?, PollFlags::IN)))
            .collect();
        let Ok(timeout) = Timespec::try_from(LOOK) else {
            return;
        };
        if fds.is_empty() || poll(&mut fds, Some(&timeout)).is_err() {
            std::thread::sleep(LOOK);
        }
    }
}

impl Watched {
    fn adopt(host: &Host, holding: &Holding) -> Option<Self> {
        let (pid, start) = process(holding)?;
        let vm_id = holding.owner.name().parse().ok()?;
        let folder = Folder::new(&host.dir.machines(), &vm_id).ok();
        let handle = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok())
            // Opened first, looked at then: if it is the same now, the handle is its.
            .filter(|_| is_alive(host, pid, start));
        let mut watched = Self {
            task_id: holding.task_id.clone(),
            process: (pid, start),
            events: None,
            folder,
            handle,
            said: None,
            asked: false,
            retry: None,
            pause: FIRST,
        };
        watched.listen(holding);
        tracing::info!(vm_id = holding.owner.name(), pid, "a machine is looked after");
        Some(watched)
    }

    /// Connects to the monitor; it must be that of the machine that was launched.
    fn listen(&mut self, holding: &Holding) {
        let Some(folder) = self.folder.as_ref().filter(|_| self.handle.is_some()) else {
            return;
        };
        let uuid = |q: &mut Qmp| -> Option<String> {
            Some(
                q.execute("query-uuid", None)
                    .ok()?
                    .get("UUID")?
                    .as_str()?
                    .to_owned(),
            )
        };
        let expected = holding.facts.get("uuid").and_then(|u| u.as_str());
        match Qmp::connect(&folder.events(), PATIENCE) {
            Ok(mut q) => {
                if uuid(&mut q).as_deref() == expected {
                    self.events = Some(q);
                } else {
                    tracing::error!(vm_id = holding.owner.name(), "the monitor is another machine's");
                }
            }
            // It is killed at its time all the same.
            Err(e) => tracing::warn!(
                vm_id = holding.owner.name(),
                "the monitor cannot be listened to: {e}"
            ),
        }
    }

    /// Why it has to be taken away, if it has to.
    fn over(&mut self, host: &Host, holding: &Holding) -> Option<String> {
        if self.retry.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        self.hear();
        let left = lease_left(host, holding);
        let (pid, start) = self.process;
        // Should the guard have ended it, that was the lease's end.
        if !left.is_zero() && !is_alive(host, pid, start) {
            return Some(match &self.said {
                Some(said) => format!("it ended: {said}"),
                None => "it crashed".to_owned(),
            });
        }
        if left.is_zero() {
            return Some("its lease has ended".to_owned());
        }
        if left <= GRACE && !self.asked {
            self.asked = true;
            if let Some(folder) = &self.folder {
                press(folder);
            }
        }
        None
    }

    fn hear(&mut self) {
        let Some(events) = &mut self.events else { return };
        let open = events.pump().unwrap_or(false);
        while let Some(event) = events.event() {
            if event.starts_with("SHUTDOWN") {
                self.said = Some(event);
            }
        }
        if !open {
            self.events = None;
        }
    }

    fn end(&mut self, host: &Host, ledger: &Arc<Ledger>, owner: &Owner, why: &str) {
        let vm_id = owner.name();
        match ledger.release(host, owner, why) {
            Ok(undone) if undone.stuck.is_empty() => {
                tracing::warn!(vm_id, "a machine was taken away: {why}");
            }
            Ok(undone) => {
                self.retry = Instant::now().checked_add(self.pause);
                self.pause = self.pause.saturating_mul(2).min(LONGEST);
                tracing::error!(
                    vm_id,
                    "a machine cannot be taken away wholly: {}",
                    undone.stuck.join("; ")
                );
            }
            // A task works on it: that takes it away, or leaves it to us.
            Err(e) => {
                self.retry = Instant::now().checked_add(LOOK);
                tracing::debug!(vm_id, "a machine is not taken away now: {e}");
            }
        }
    }
}
