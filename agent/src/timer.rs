//! Waiting until a moment with one wake-up. A long wait in tokio's wheel wakes the process once per level of the wheel on
//! its way, up to three times; an agent waits all day.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock::instant;

/// A timer of the kernel's, or tokio's: in simulated time, and where the kernel gives none.
#[derive(Debug)]
pub struct Timer(Option<AsyncFd<OwnedFd>>);

impl Timer {
    /// The kernel's. Must be called within a runtime.
    #[must_use]
    pub fn kernel() -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).ok();
        #[expect(
            deprecated,
            reason = "the unsafe function instead of it is for types that may change their descriptor; an OwnedFd does not"
        )]
        let register = |fd| AsyncFd::with_interest(fd, Interest::READABLE).ok();
        Self(fd.and_then(register))
    }

    /// Tokio's, which a test may pause.
    #[must_use]
    pub fn simulated() -> Self {
        Self(None)
    }

    /// Waits. Dropped before its end, it leaves nothing behind but one wake-up at that moment.
    pub async fn until(&self, at: Instant) {
        if let Some(fd) = &self.0 {
            loop {
                let left = at.saturating_duration_since(instant());
                if left.is_zero() {
                    return;
                }
                let Ok(value) = Timespec::try_from(left) else {
                    break;
                };
                let once = Itimerspec {
                    it_interval: Timespec::default(),
                    it_value: value,
                };
                if timerfd_settime(fd, TimerfdTimerFlags::empty(), &once).is_err() {
                    break;
                }
                let Ok(mut ready) = fd.readable().await else { break };
                // Early: an expiry of a wait before this one.
                let mut count = [0u8; 8];
                rustix::io::read(fd, &mut count).ok();
                ready.clear_ready();
            }
        }
        tokio::time::sleep_until(at.into()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_waits_until_the_moment_also_after_a_wait_that_was_given_up() {
        for timer in [Timer::kernel(), Timer::simulated()] {
            let start = Instant::now();
            timer.until(start).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
                () = timer.until(start + Duration::from_millis(40)) => panic!("it did not wait"),
            }
            timer.until(start + Duration::from_millis(120)).await;
            assert!(start.elapsed() >= Duration::from_millis(120));
            // The past does not wait.
            timer.until(start).await;
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_simulated_time_a_day_is_a_moment() {
        let start = Instant::now();
        Timer::simulated()
            .until(instant() + Duration::from_secs(86_400))
            .await;
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
