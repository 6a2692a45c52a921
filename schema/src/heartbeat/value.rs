//! The small value types of the heartbeat: bounded texts, percentages, fixed point.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Why a value does not fit its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Longer than the field allows.
    #[error("must have at most {max} characters")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// A label holds something other than printable ASCII, or one of `" \ < > &`.
    #[error("must be printable ASCII without \" \\ < > &, and not empty")]
    NotALabel,
    /// A percentage outside 0–100.
    #[error("must be an integer from 0 to 100")]
    NotAPercentage,
    /// Not an integer string of at most 15 digits.
    #[error("must be an integer of at most 15 digits as a string, in millionths (\"16500000\" is 16.5)")]
    NotFixedPoint,
}

/// A short name that may stand on chain: 1 to `MAX` bytes of printable ASCII without `" \ < > &`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label<const MAX: usize>(String);

fn label_byte(b: u8) -> bool {
    (b == b' ' || b.is_ascii_graphic()) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&')
}

impl<const MAX: usize> Label<MAX> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is left of `text` once characters that a label may not hold are dropped and the rest is cut
    /// to length; none if nothing is left.
    #[must_use]
    pub fn lossy(text: &str) -> Option<Self> {
        let kept: String = text
            .trim()
            .chars()
            .filter(|c| u8::try_from(*c).is_ok_and(label_byte))
            .take(MAX)
            .collect();
        let kept = kept.trim_end();
        (!kept.is_empty()).then(|| Self(kept.to_owned()))
    }
}

impl<const MAX: usize> TryFrom<String> for Label<MAX> {
    type Error = ValueError;
    fn try_from(s: String) -> Result<Self, ValueError> {
        if s.len() > MAX {
            return Err(ValueError::TooLong { max: MAX });
        }
        if s.is_empty() || !s.bytes().all(label_byte) {
            return Err(ValueError::NotALabel);
        }
        Ok(Self(s))
    }
}

impl<const MAX: usize> FromStr for Label<MAX> {
    type Err = ValueError;
    fn from_str(s: &str) -> Result<Self, ValueError> {
        Self::try_from(s.to_owned())
    }
}

impl<const MAX: usize> From<Label<MAX>> for String {
    fn from(l: Label<MAX>) -> String {
        l.0
    }
}

impl<const MAX: usize> fmt::Display for Label<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> fmt::Debug for Label<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<const MAX: usize> JsonSchema for Label<MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Label{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": MAX, "pattern": r##"^[ !#-%'-;=?-\[\]-~]+$"##})
    }
}

/// Free text of at most `MAX` characters (not bytes).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text<const MAX: usize>(String);

impl<const MAX: usize> Text<MAX> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first `MAX` characters of `text`; none if it is empty.
    #[must_use]
    pub fn cut(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.chars().take(MAX).collect()))
    }
}

impl<const MAX: usize> TryFrom<String> for Text<MAX> {
    type Error = ValueError;
    fn try_from(s: String) -> Result<Self, ValueError> {
        if s.chars().count() > MAX {
            return Err(ValueError::TooLong { max: MAX });
        }
        Ok(Self(s))
    }
}

impl<const MAX: usize> FromStr for Text<MAX> {
    type Err = ValueError;
    fn from_str(s: &str) -> Result<Self, ValueError> {
        Self::try_from(s.to_owned())
    }
}

impl<const MAX: usize> From<Text<MAX>> for String {
    fn from(t: Text<MAX>) -> String {
        t.0
    }
}

impl<const MAX: usize> fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<const MAX: usize> JsonSchema for Text<MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Text{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": MAX})
    }
}

/// A whole percentage, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 0, "maximum": 100, "description": "A whole percentage."})
    }
}

impl Percent {
    /// The number, 0 to 100.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }

    /// `value`, or 100 if it is more.
    #[must_use]
    pub fn saturating(value: u64) -> Self {
        Self(u8::try_from(value.min(100)).unwrap_or(100))
    }
}

impl TryFrom<u8> for Percent {
    type Error = ValueError;
    fn try_from(n: u8) -> Result<Self, ValueError> {
        if n > 100 {
            Err(ValueError::NotAPercentage)
        } else {
            Ok(Self(n))
        }
    }
}

impl From<Percent> for u8 {
    fn from(p: Percent) -> u8 {
        p.0
    }
}

/// A non-negative number with six decimals as an integer string in JSON: `"16500000"` is 16.5.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FixedPoint6(u64);

impl FixedPoint6 {
    /// From millionths.
    #[must_use]
    pub fn from_millionths(millionths: u64) -> Self {
        Self(millionths.min(999_999_999_999_999))
    }

    /// In millionths.
    #[must_use]
    pub fn millionths(self) -> u64 {
        self.0
    }

    /// From a decimal text such as `/proc/loadavg` holds (`16.5`); more than six decimals are cut off.
    ///
    /// # Errors
    /// [`ValueError::NotFixedPoint`] if it is not digits with at most one point.
    pub fn from_decimal(text: &str) -> Result<Self, ValueError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 9 || !digits(whole) || !digits(fraction) {
            return Err(ValueError::NotFixedPoint);
        }
        let micro: String = fraction.chars().chain("000000".chars()).take(6).collect();
        format!("{whole}{micro}")
            .parse()
            .map(Self)
            .map_err(|_| ValueError::NotFixedPoint)
    }
}

impl FromStr for FixedPoint6 {
    type Err = ValueError;
    /// As it stands in JSON, in millionths.
    fn from_str(s: &str) -> Result<Self, ValueError> {
        if s.is_empty() || s.len() > 15 || !s.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ValueError::NotFixedPoint);
        }
        s.parse().map(Self).map_err(|_| ValueError::NotFixedPoint)
    }
}

impl TryFrom<String> for FixedPoint6 {
    type Error = ValueError;
    fn try_from(s: String) -> Result<Self, ValueError> {
        s.parse()
    }
}

impl From<FixedPoint6> for String {
    fn from(f: FixedPoint6) -> String {
        f.0.to_string()
    }
}

impl fmt::Display for FixedPoint6 {
    /// As a decimal with six places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl JsonSchema for FixedPoint6 {
    fn schema_name() -> Cow<'static, str> {
        "FixedPoint6".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]{1,15}$",
            "description": "Fixed point with six decimals as an integer string: \"16500000\" is 16.5."
        })
    }
}

/// Makes the schema of an optional text say that the empty one counts as absent, as `null` does.
pub(super) fn or_empty(schema: &mut Schema) {
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.push(json!({"const": ""}));
    }
    schema.remove("minLength");
    if let Some(Value::String(pattern)) = schema.get_mut("pattern")
        && let Some(all) = pattern.strip_suffix("+$")
    {
        *pattern = format!("{all}*$");
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
