//! Waiting for a program with few wake-ups: this one shares its host with jobs.

use std::io;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// So long what a program prints stays in its pipe: most have ended by then, and one wait does for all that they do.
const MOMENT: Duration = Duration::from_millis(50);
/// A program whose streams are closed is on its way out, most often by microseconds.
const YIELDS: u32 = 16;

/// Waits a moment for the end of the error stream, which goes last with its program. One that prints more than a pipe
/// holds is read after that moment; it loses nothing.
pub(super) fn settle(child: &Child, end: Option<Instant>) {
    let Some(stream) = &child.stderr else { return };
    let left = end.map_or(Duration::ZERO, |e| e.saturating_duration_since(Instant::now()));
    let Ok(timeout) = Timespec::try_from(left.min(MOMENT)) else {
        return;
    };
    // Asked for nothing, the kernel tells of the end alone. A signal only makes the moment shorter.
    poll(&mut [PollFd::new(stream, PollFlags::empty())], Some(&timeout)).ok();
}

/// Its end, if it comes before `end`.
pub(super) fn wait(child: &mut Child, end: Option<Instant>) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(200);
    let mut yields = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if end.is_none_or(|e| Instant::now() >= e) {
            return Ok(None);
        }
        if yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
            continue;
        }
        std::thread::sleep(pause);
        pause = pause.saturating_mul(2).min(Duration::from_millis(10));
    }
}
