//! The time window of heartbeats and reports (protocol decision 22).

use crate::code::Code;
use crate::report::{MAX_AGE_SECONDS, MAX_AHEAD_SECONDS};
use crate::time::UnixSeconds;

/// Whether `time` lies within −5 min and +1 min of `now`, both in whole seconds; the limits themselves pass.
///
/// # Errors
/// [`Code::TimestampExpired`] or [`Code::TimestampInFuture`].
pub fn check_window(time: UnixSeconds, now: UnixSeconds) -> Result<(), Code> {
    if now.since(time) > MAX_AGE_SECONDS {
        Err(Code::TimestampExpired)
    } else if time.since(now) > MAX_AHEAD_SECONDS {
        Err(Code::TimestampInFuture)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_pass_and_one_second_beyond_does_not() {
        let now = UnixSeconds(1_769_781_900);
        assert_eq!(check_window(now.minus(300), now), Ok(()));
        assert_eq!(check_window(now.minus(301), now), Err(Code::TimestampExpired));
        assert_eq!(check_window(now.plus(60), now), Ok(()));
        assert_eq!(check_window(now.plus(61), now), Err(Code::TimestampInFuture));
        assert_eq!(
            check_window(UnixSeconds(0), UnixSeconds(u64::MAX)),
            Err(Code::TimestampExpired)
        );
        assert_eq!(
            check_window(UnixSeconds(u64::MAX), UnixSeconds(0)),
            Err(Code::TimestampInFuture)
        );
    }
}
