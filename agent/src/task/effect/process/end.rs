use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::find::{find_marked, is_alive};
use crate::task::effect::{EffectError, Scene};
use crate::task::host::Host;

/// How long a killed process may take to go.
const KILLED: Duration = Duration::from_secs(10);

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
pub(in crate::task::effect) fn end_marked(scene: Scene<'_>) -> Result<usize, EffectError> {
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
