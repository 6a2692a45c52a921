use std::fmt;
use std::time::Duration;

use jiff::SpanRelativeTo;
use serde::{Deserialize, Serialize};

/// A length of time in configuration and flags: `500ms`, `30s`, `5m`, `24h`, `14d`. A day has 24 hours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(Duration);

impl schemars::JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A length of time, such as 500ms, 30s, 5m, 24h or 14d.",
            "examples": ["500ms", "30s", "5m", "24h", "14d"],
        })
    }
}

impl Span {
    /// From whole seconds.
    #[must_use]
    pub const fn seconds(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }

    /// From milliseconds.
    #[must_use]
    pub const fn millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// As the standard library's type.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0.as_secs()
    }
}

impl TryFrom<String> for Span {
    type Error = String;
    fn try_from(s: String) -> Result<Self, String> {
        let bad = || format!("{s:?} is not a length of time; write e.g. 500ms, 30s, 5m, 24h or 14d");
        let text = s.trim();
        // To the library a day may be longer or shorter than 24 hours.
        let span = text
            .parse::<jiff::Span>()
            .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
        Duration::try_from(span.map_err(|_| bad())?)
            .map(Self)
            .map_err(|_| bad())
    }
}

impl std::str::FromStr for Span {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::try_from(s.to_owned())
    }
}

impl From<Span> for String {
    fn from(s: Span) -> String {
        s.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let (n, unit) = match ms {
            0 => (0, "s"),
            _ if ms.is_multiple_of(3_600_000) => (ms / 3_600_000, "h"),
            _ if ms.is_multiple_of(60_000) => (ms / 60_000, "m"),
            _ if ms.is_multiple_of(1000) => (ms / 1000, "s"),
            _ => (ms, "ms"),
        };
        write!(f, "{n}{unit}")
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (text, ms) in [
            ("500ms", 500),
            ("2s", 2000),
            ("5m", 300_000),
            ("24h", 86_400_000),
            ("0s", 0),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, Span::millis(ms));
            assert_eq!(span.to_string(), text);
        }
        for (text, hours) in [
            ("14d", 336),
            ("1d12h", 36),
            ("2 days 3h", 51),
            ("1 hour", 1),
            ("P1D", 24),
            ("PT2H", 2),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, Span::seconds(hours * 3600), "{text}");
        }
        for bad in ["", "30", "-5s", "-1d", "soon", "1mo", "1y"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
