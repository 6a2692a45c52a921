use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;

use super::failure::Failure;

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
}
