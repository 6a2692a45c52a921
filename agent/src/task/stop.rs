use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;

use super::failure::Failure;

/// Between two looks whether a lock is free.
const LOOK: Duration = Duration::from_millis(20);

/// When a task has to end: it was taken back, or its time is over.
#[derive(Debug, Clone)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Of a task that may run for so long.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self {
            cancelled: Arc::default(),
            deadline: Instant::now().checked_add(limit),
        }
    }

    /// The same with fresh time.
    pub(super) fn renewed(&self, limit: Duration) -> Self {
        Self {
            cancelled: Arc::clone(&self.cancelled),
            deadline: Instant::now().checked_add(limit),
        }
    }

    /// The same, so much later: of what bounds itself.
    pub(super) fn later(&self, by: Duration) -> Self {
        Self {
            cancelled: Arc::clone(&self.cancelled),
            deadline: self.deadline.and_then(|at| at.checked_add(by)),
        }
    }

    /// Takes it back.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether it was taken back.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The time that is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        match self.deadline {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        }
    }

    /// Whether it may go on.
    ///
    /// # Errors
    /// [`Code::TaskCancelled`], [`Code::TaskTimeout`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_cancelled() {
            return Err(Failure::new(Code::TaskCancelled, "the task was taken back"));
        }
        if self.left().is_zero() {
            return Err(Failure::new(
                Code::TaskTimeout,
                "the task took longer than its type may",
            ));
        }
        Ok(())
    }

    /// Waits for a lock that others may hold for long, while the task may go on.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) fn lock<'a, T>(&self, lock: &'a Mutex<T>) -> Result<MutexGuard<'a, T>, Failure> {
        loop {
            match lock.try_lock() {
                Ok(guard) => return Ok(guard),
                // Whoever held it has broken; what it guards is only whose turn it is.
                Err(TryLockError::Poisoned(e)) => return Ok(e.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            self.check()?;
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_is_the_same_task() {
        let stop = Stop::after(Duration::ZERO);
        let later = stop.later(Duration::from_secs(60));
        assert_eq!(stop.check().unwrap_err().code, Code::TaskTimeout);
        later.check().unwrap();
        assert!(later.left() <= Duration::from_secs(60));
        stop.cancel();
        assert_eq!(later.check().unwrap_err().code, Code::TaskCancelled);
    }

    #[test]
    fn who_waits_for_a_lock_waits_no_longer_than_the_task_may_run() {
        let lock = Mutex::new(());
        let held = Stop::after(Duration::from_secs(60)).lock(&lock).unwrap();
        let late = Stop::after(Duration::from_millis(50)).lock(&lock).unwrap_err();
        assert_eq!(late.code, Code::TaskTimeout);
        let stop = Stop::after(Duration::from_secs(60));
        stop.cancel();
        assert_eq!(stop.lock(&lock).unwrap_err().code, Code::TaskCancelled);
        drop(held);
        assert!(Stop::after(Duration::from_secs(60)).lock(&lock).is_ok());
    }
}
