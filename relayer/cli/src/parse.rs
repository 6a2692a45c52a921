//! Readers of single values on the command line.

use std::str::FromStr;
use std::time::Duration;

use hpc_schema::time::{Rfc3339, UnixSeconds};

/// Longest memo that the SDK takes by default.
const MAX_MEMO: usize = 256;

/// A span like `500ms`, `90s`, `2m`, `12h` or `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no span of time such as 90s, 2m, 12h or 7d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    };
    match millis {
        Some(millis) if millis > 0 && millis <= 366 * 86_400_000 => Ok(Duration::from_millis(millis)),
        _ => Err(bad()),
    }
}

/// A memo that fits.
pub(crate) fn memo(text: &str) -> Result<String, String> {
    if text.len() > MAX_MEMO {
        return Err(format!("has {} bytes, at most {MAX_MEMO} fit", text.len()));
    }
    Ok(text.to_owned())
}

/// Lower-case hex of 32 bytes.
pub(crate) fn digest(text: &str) -> Result<String, String> {
    let hex = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if hex {
        Ok(text.to_owned())
    } else {
        Err("must be 64 lower-case hex digits (SHA-256)".to_owned())
    }
}

/// An end: an instant, or a span from now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Until {
    /// RFC 3339.
    At(UnixSeconds),
    /// From now on.
    For(Duration),
}

impl Until {
    /// The instant, seen from `now`.
    pub(crate) fn instant(&self, now: UnixSeconds) -> UnixSeconds {
        match self {
            Self::At(at) => *at,
            Self::For(span) => now.plus(span.as_secs()),
        }
    }
}

impl FromStr for Until {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if let Ok(span) = duration(s) {
            return Ok(Self::For(span));
        }
        s.parse::<Rfc3339>()
            .map(|t| Self::At(t.seconds()))
            .map_err(|_| "must be RFC 3339 like 2026-03-01T12:00:00Z, or a span like 12h or 7d".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit_and_a_bound() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for bad in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "0s",
            "1w",
            "367d",
            "99999999999999999999d",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_end_is_an_instant_or_a_span() {
        let now = UnixSeconds(1_769_781_900);
        assert_eq!("2h".parse::<Until>().unwrap().instant(now), now.plus(7200));
        assert_eq!(
            "2026-01-30T14:05:00Z"
                .parse::<Until>()
                .unwrap()
                .instant(UnixSeconds(0)),
            now
        );
        assert!("tomorrow".parse::<Until>().is_err());
    }

    #[test]
    fn digests_and_memos_are_checked() {
        assert!(digest(&"ab".repeat(32)).is_ok());
        assert!(digest(&"AB".repeat(32)).is_err());
        assert!(digest("ab").is_err());
        assert!(memo(&"m".repeat(256)).is_ok());
        assert!(memo(&"m".repeat(257)).is_err());
    }
}
