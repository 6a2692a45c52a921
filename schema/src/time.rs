//! Time as the protocol uses it: whole UNIX seconds on chain, RFC 3339 in JSON.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
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
            .and_then(|s| Timestamp::from_second(s).ok())
        {
            Some(t) => write!(f, "{t}"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Why a text or a number is no time of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Longer than a time may be written.
    #[error("must have at most {MAX_TEXT} characters")]
    TooLong,
    /// No `date-time` of RFC 3339, section 5.6.
    #[error(
        "must be an RFC 3339 time such as 2026-01-30T14:05:00.5Z or 2026-01-30T15:05:00+01:00, not {0:?}"
    )]
    NotRfc3339(String),
    /// Before or after what can be counted.
    #[error("must be from 1970-01-01T00:00:00Z to 9999-12-30T22:00:00Z, not {0:?}")]
    OutOfRange(String),
}

/// Bytes of the longest text that is read as a time. Nanoseconds and an offset fit in 35; longer ones only burn time.
const MAX_TEXT: usize = 64;

/// An instant in RFC 3339, of at most 64 characters; the text that came in is kept, because it is signed. Digits of a fraction
/// beyond nanoseconds do not count; a leap second counts as the second before it.
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
    /// [`TimeError::OutOfRange`] if the instant is after 9999-12-30T22:00:00Z, or `nanos` are a second or more.
    pub fn from_unix(seconds: u64, nanos: u32) -> Result<Self, TimeError> {
        let fail = || TimeError::OutOfRange(seconds.to_string());
        let t = Timestamp::new(
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
        if text.len() > MAX_TEXT {
            return Err(TimeError::TooLong);
        }
        let Some((time, offset)) = Reader(text.as_bytes()).date_time() else {
            return Err(TimeError::NotRfc3339(text));
        };
        let Ok(t) = offset.to_timestamp(time) else {
            return Err(TimeError::OutOfRange(text));
        };
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(t.as_second()), u32::try_from(t.subsec_nanosecond()))
        else {
            return Err(TimeError::OutOfRange(text));
        };
        Ok(Self { text, seconds, nanos })
    }
}

/// What of a text is still to be read. A parser of ISO 8601 would take more than RFC 3339 allows.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// A whole `date-time` of RFC 3339, section 5.6, with a space in place of `T` too (its note).
    fn date_time(mut self) -> Option<(DateTime, Offset)> {
        let year = i16::from(self.two_digits()?) * 100 + i16::from(self.two_digits()?);
        self.one_of(b"-")?;
        let month = self.two_digits()?;
        self.one_of(b"-")?;
        let day = self.two_digits()?;
        self.one_of(b"Tt ")?;
        let hour = self.two_digits()?;
        self.one_of(b":")?;
        let minute = self.two_digits()?;
        self.one_of(b":")?;
        let mut second = self.two_digits()?;
        let nanos = self.fraction()?;
        let offset = self.offset_minutes()?;
        if !self.0.is_empty() {
            return None;
        }
        if second == 60 {
            // Leap seconds end a day in UTC.
            let utc = (i32::from(hour) * 60 + i32::from(minute) - offset).rem_euclid(24 * 60);
            if utc != 24 * 60 - 1 {
                return None;
            }
            second = 59;
        }
        let time = DateTime::new(year, month, day, hour, minute, second, nanos).ok()?;
        Some((time, Offset::from_seconds(offset * 60).ok()?))
    }

    /// The next byte, if it is among `any`.
    fn one_of(&mut self, any: &[u8]) -> Option<u8> {
        let (next, rest) = self.0.split_first()?;
        any.contains(next).then(|| {
            self.0 = rest;
            *next
        })
    }

    fn digit(&mut self) -> Option<i8> {
        let digit = self.one_of(b"0123456789")?;
        i8::try_from(digit - b'0').ok()
    }

    fn two_digits(&mut self) -> Option<i8> {
        Some(self.digit()? * 10 + self.digit()?)
    }

    /// Nanoseconds; 0 without a fraction.
    fn fraction(&mut self) -> Option<i32> {
        if self.one_of(b".").is_none() {
            return Some(0);
        }
        let mut unit = 100_000_000;
        let mut nanos = i32::from(self.digit()?) * unit;
        while let Some(digit) = self.digit() {
            unit /= 10;
            nanos += i32::from(digit) * unit;
        }
        Some(nanos)
    }

    /// Minutes east of UTC.
    fn offset_minutes(&mut self) -> Option<i32> {
        let sign = match self.one_of(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.two_digits()?;
        self.one_of(b":")?;
        let minutes = self.two_digits()?;
        (hours < 24 && minutes < 60).then(|| sign * (i32::from(hours) * 60 + i32::from(minutes)))
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
            "2026-01-30T14:05Z",
            "2026-1-30T14:05:00Z",
            "2026-02-29T14:05:00Z",
            "2026-01-30T24:00:00Z",
            "2026-01-30_14:05:00Z",
            "2026-01-30T14:05:00 Z",
            " 2026-01-30T14:05:00Z",
            "2026-01-30T14:05:00.Z",
            "2026-01-30T14:05:00,500Z",
            "2026-01-30T14:05:00+0000",
            "2026-01-30T14:05:00+02",
            "2026-01-30T14:05:00-00",
            "2026-01-30T14:05:00+24:00",
            "2026-01-30T14:05:00+02:60",
            "2026-01-30T14:05:00+02:00:00",
            "2026-01-30T14:05:00Z[UTC]",
            "20260130T140500Z",
            "+002026-01-30T14:05:00Z",
            "-002026-01-30T14:05:00Z",
            "yesterday",
        ] {
            let error = bad.parse::<Rfc3339>().unwrap_err();
            assert_eq!(error, TimeError::NotRfc3339(bad.to_owned()));
            assert!(error.to_string().contains("RFC 3339"), "{error}");
        }
        let long = format!("2026-01-30T14:05:00.{}Z", "0".repeat(44));
        assert_eq!(long.parse::<Rfc3339>(), Err(TimeError::TooLong));
    }

    #[test]
    fn reads_what_rfc_3339_allows() {
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-01-30t14:05:00z", 1_769_781_900, 0),
            ("2026-01-30 14:05:00.5Z", 1_769_781_900, 500_000_000),
            ("2026-01-30T14:05:00-00:00", 1_769_781_900, 0),
            ("2026-01-31T14:04:00+23:59", 1_769_781_900, 0),
            ("2026-01-29T14:06:00-23:59", 1_769_781_900, 0),
            ("2026-01-30T15:35:00.000000001+01:30", 1_769_781_900, 1),
            ("2026-01-30T14:05:00.1234567899999Z", 1_769_781_900, 123_456_789),
            ("2024-02-29T00:00:00Z", 1_709_164_800, 0),
            ("9999-12-30T22:00:00Z", 253_402_207_200, 0),
        ] {
            let t: Rfc3339 = text.parse().unwrap();
            assert_eq!((t.seconds().0, t.subsec_nanos()), (seconds, nanos), "{text}");
            assert_eq!(t.as_str(), text);
        }
    }

    #[test]
    fn a_leap_second_ends_a_day_in_utc_and_counts_as_the_second_before() {
        for good in [
            "2016-12-31T23:59:60Z",
            "2017-01-01T01:29:60+01:30",
            "2016-12-31T15:59:60-08:00",
        ] {
            assert_eq!(
                good.parse::<Rfc3339>().unwrap().seconds().0,
                1_483_228_799,
                "{good}"
            );
        }
        for bad in [
            "2016-12-31T23:58:60Z",
            "2016-12-31T23:59:60+01:00",
            "2016-12-31T23:59:61Z",
        ] {
            assert!(bad.parse::<Rfc3339>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_told_with_the_limits() {
        for bad in [
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:59:59+01:00",
            "9999-12-30T22:00:01Z",
            "9999-12-31T23:59:59Z",
        ] {
            let error = bad.parse::<Rfc3339>().unwrap_err();
            assert_eq!(error, TimeError::OutOfRange(bad.to_owned()));
            assert!(error.to_string().contains("to 9999-12-30T22:00:00Z"), "{error}");
        }
        assert!(Rfc3339::from_unix(253_402_207_200, 0).is_ok());
        assert!(Rfc3339::from_unix(253_402_207_201, 0).is_err());
    }
}
