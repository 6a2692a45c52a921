//! What several collectors read of one file of the kernel's: in a round that asks them all it is read once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So long what one has read is as good as new for the other.
const MOMENT: Duration = Duration::from_millis(100);

/// The last reading. Whoever finds it too old reads for itself, so that nobody waits for another that hangs.
#[derive(Debug)]
pub struct Recent<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Recent<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Copy> Recent<T> {
    /// What was read within the last moment, by whomever; else what `read` gives.
    pub fn or(&self, now: Instant, read: impl FnOnce() -> Option<T>) -> Option<T> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = *lock();
        if let Some((at, value)) = last
            && now.saturating_duration_since(at) < MOMENT
        {
            return Some(value);
        }
        let value = read()?;
        *lock() = Some((now, value));
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_has_read_this_moment_is_not_read_again_and_a_failure_is() {
        let (one, now) = (Recent::<i32>::default(), Instant::now());
        let two = one.clone();
        assert_eq!(one.or(now, || None), None);
        assert_eq!(one.or(now, || Some(1)), Some(1));
        let soon = now + MOMENT / 2;
        assert_eq!(two.or(soon, || panic!("it is known")), Some(1));
        let later = now + MOMENT;
        assert_eq!(two.or(later, || Some(2)), Some(2));
        assert_eq!(one.or(later, || Some(3)), Some(2));
    }
}
