//! Waiting with a deadline: no test sleeps and hopes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Pause between two looks.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Looks until `look` gives a value; errors of `look` count as "not yet".
///
/// # Errors
/// If there is none after `deadline`; names `what` and the last error.
pub fn until<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        let last = match look() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if Instant::now() > end {
            match last {
                Some(error) => bail!("waited {deadline:?} in vain for {what}; last error: {error:#}"),
                None => bail!("waited {deadline:?} in vain for {what}"),
            }
        }
        std::thread::sleep(PAUSE);
    }
}
