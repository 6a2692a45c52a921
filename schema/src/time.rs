//! Time as the protocol uses it: whole UNIX seconds on chain, RFC 3339 in JSON.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Seconds from `earlier` to `self`; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// `self` + `seconds`, saturating.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// `self` - `seconds`, saturating.
    #[must_use]
    pub fn minus(self, seconds: u64) -> Self {
        Self(self.0.saturating_sub(seconds))
    }
}

impl fmt::Display for UnixSeconds {
    /// RFC 3339 in UTC, or the number where no calendar date exists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0)
            .ok()
            .and_then(|s| jiff::Timestamp::from_second(s).ok())
        {
            Some(t) => write!(f, "{t}"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// The text is not an RFC 3339 instant at or after 1970.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 timestamp at or after 1970: {0:?}")]
pub struct TimeError(String);

/// An instant in RFC 3339 with up to nanoseconds; the text that came in is kept, because it is signed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Rfc3339 {
    #[schemars(with = "String")]
    text: String,
    #[schemars(skip)]
    seconds: u64,
    #[schemars(skip)]
    nanos: u32,
}

impl Rfc3339 {
    /// Whole seconds, rounded down.
    #[must_use]
    pub fn seconds(&self) -> UnixSeconds {
        UnixSeconds(self.seconds)
    }

    /// Nanoseconds within the second.
    #[must_use]
    pub fn subsec_nanos(&self) -> u32 {
        self.nanos
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// From whole seconds and nanoseconds, written with nine decimals in UTC.
    ///
    /// # Errors
    /// If the instant is outside years 1970–9999.
    pub fn from_unix(seconds: u64, nanos: u32) -> Result<Self, TimeError> {
        let fail = || TimeError(seconds.to_string());
        let t = jiff::Timestamp::new(
            i64::try_from(seconds).map_err(|_| fail())?,
            i32::try_from(nanos).map_err(|_| fail())?,
        )
        .map_err(|_| fail())?;
        Ok(Self {
            text: format!("{t:.9}"),
            seconds,
            nanos,
        })
    }
}

impl TryFrom<String> for Rfc3339 {
    type Error = TimeError;
    fn try_from(text: String) -> Result<Self, TimeError> {
        let fail = |text: &str| TimeError(text.chars().take(64).collect());
        // Longer text only burns parser time: nanoseconds and an offset fit in 35 bytes.
        if text.len() > 40 {
            return Err(fail(&text));
        }
        let Ok(t) = text.parse::<jiff::Timestamp>() else {
            return Err(fail(&text));
        };
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(t.as_second()), u32::try_from(t.subsec_nanosecond()))
        else {
            return Err(fail(&text));
        };
        Ok(Self { text, seconds, nanos })
    }
}

impl FromStr for Rfc3339 {
    type Err = TimeError;
    fn from_str(s: &str) -> Result<Self, TimeError> {
        Self::try_from(s.to_owned())
    }
}

impl From<Rfc3339> for String {
    fn from(t: Rfc3339) -> String {
        t.text
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_nanoseconds_and_keeps_the_text() {
        let t: Rfc3339 = "2026-01-30T14:05:00.123456789Z".parse().unwrap();
        assert_eq!((t.seconds().0, t.subsec_nanos()), (1_769_781_900, 123_456_789));
        assert_eq!(t.as_str(), "2026-01-30T14:05:00.123456789Z");
        assert_eq!(Rfc3339::from_unix(1_769_781_900, 123_456_789).unwrap(), t);
        assert_eq!(t.seconds().to_string(), "2026-01-30T14:05:00Z");
    }

    #[test]
    fn refuses_what_is_not_an_instant() {
        for bad in [
            "",
            "2026-01-30",
            "2026-01-30T14:05:00",
            "1969-12-31T23:59:59Z",
            "yesterday",
        ] {
            assert!(bad.parse::<Rfc3339>().is_err(), "{bad}");
        }
    }
}
