//! Durations as people write them: `30s`, `5m`, `1h30m`, `500ms`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration of configuration or command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanDuration(pub Duration);

/// Not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a duration: {0:?}; write a number with a unit, such as 30s, 5m, 1h30m or 500ms")]
pub struct DurationError(String);

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("ms", 1),
    ("m", 60_000),
    ("s", 1000),
];

impl FromStr for HumanDuration {
    type Err = DurationError;

    fn from_str(s: &str) -> Result<Self, DurationError> {
        parse(s.trim())
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| DurationError(s.chars().take(40).collect()))
    }
}

fn parse(mut rest: &str) -> Option<u64> {
    if rest.is_empty() {
        return None;
    }
    let mut total = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let (unit, factor) = UNITS.iter().find(|(u, _)| tail.starts_with(u))?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = tail.strip_prefix(unit)?;
    }
    Some(total)
}

impl TryFrom<String> for HumanDuration {
    type Error = DurationError;
    fn try_from(s: String) -> Result<Self, DurationError> {
        s.parse()
    }
}

impl From<HumanDuration> for String {
    fn from(d: HumanDuration) -> String {
        d.to_string()
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
            let n = rest.checked_div(factor).unwrap_or(0);
            if n > 0 {
                write!(f, "{n}{unit}")?;
            }
            rest = rest.checked_rem(factor).unwrap_or(0);
        }
        Ok(())
    }
}

impl fmt::Debug for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl JsonSchema for HumanDuration {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^([0-9]+(d|h|ms|m|s))+$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, ms, shown) in [
            ("30s", 30_000, "30s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90s", 90_000, "1m30s"),
            ("500ms", 500, "500ms"),
        ] {
            let d: HumanDuration = text.parse().unwrap();
            assert_eq!(d.0, Duration::from_millis(ms), "{text}");
            assert_eq!(d.to_string(), shown);
        }
        for bad in ["", "30", "s", "-5s", "1.5s", "5 s", "99999999999999999999s", "5x"] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad}");
        }
    }
}
