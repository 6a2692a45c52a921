//! Reads a JSON object field by field, so that every refusal can name the path of the field at fault.
//!
//! A key that stands twice is refused: two readers of the same signed bytes must not see two values.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::code::Code;
use crate::refusal::Refusal;

/// One JSON object, its values still unread.
pub(crate) struct Fields<'a> {
    path: String,
    code: Code,
    /// In the order of [`by_length`].
    map: Vec<(Key<'a>, &'a RawValue)>,
}

/// A key of the object, borrowed unless it is written with escapes.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Most keys of an object differ in their length, which is told sooner than their bytes.
fn by_length(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

struct Unique;

impl<'de> Visitor<'de> for Unique {
    type Value = Vec<(Key<'de>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::with_capacity(16);
        while let Some(entry) = access.next_entry::<Key<'de>, &'de RawValue>()? {
            map.push(entry);
        }
        map.sort_unstable_by(|a, b| by_length(&a.0.0, &b.0.0));
        let twice = |pair: &[(Key<'_>, _)]| matches!(pair, [a, b] if a.0 == b.0);
        if map.windows(2).any(twice) {
            return Err(serde::de::Error::custom("a key stands twice in the object"));
        }
        Ok(map)
    }
}

impl<'a> Fields<'a> {
    /// Opens the object at `path`; refusals inside it carry `code`.
    pub(crate) fn open(path: &str, code: Code, raw: &'a RawValue) -> Result<Self, Refusal> {
        let mut de = serde_json::Deserializer::from_str(raw.get());
        let map = de
            .deserialize_map(Unique)
            .map_err(|e| Refusal::field(Code::Malformed, shown(path), e).malformed())?;
        Ok(Self {
            path: path.to_owned(),
            code,
            map,
        })
    }

    /// The path of the field `name` of this object.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A refusal of the field `name`.
    pub(crate) fn refuse(&self, name: &str, what: impl fmt::Display) -> Refusal {
        Refusal::field(self.code, self.path(name), what)
    }

    /// The raw value; `null` counts as absent.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let at = self
            .map
            .binary_search_by(|(key, _)| by_length(&key.0, name))
            .ok()?;
        let (_, raw) = self.map.get(at)?;
        (raw.get() != "null").then_some(*raw)
    }

    /// A value that is absent or a `T`; `expected` says what it should be.
    pub(crate) fn optional<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, Refusal> {
        self.raw(name)
            .map(|raw| {
                serde_json::from_str(raw.get())
                    .map_err(|_| self.refuse(name, format_args!("must be {expected}")))
            })
            .transpose()
    }

    /// A value that must be there.
    pub(crate) fn required<T: DeserializeOwned>(&self, name: &str, expected: &str) -> Result<T, Refusal> {
        self.optional(name, expected)?
            .ok_or_else(|| self.refuse(name, "is required"))
    }

    /// A non-negative 32-bit integer (int32 of the specification), or absent.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u32>, Refusal> {
        self.number(name, COUNT, |n: u32| i32::try_from(n).is_ok().then_some(n))
    }

    /// A non-negative 64-bit integer (int64 of the specification), or absent.
    pub(crate) fn amount(&self, name: &str) -> Result<Option<u64>, Refusal> {
        self.number(name, AMOUNT, |n: u64| i64::try_from(n).is_ok().then_some(n))
    }

    /// An integer that `within` takes, or absent. JSON writes integers as Rust does, and knows no plus sign before them; -0 is none.
    pub(crate) fn number<N: FromStr, T>(
        &self,
        name: &str,
        expected: &str,
        within: impl Fn(N) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        let text = Some(raw.get()).filter(|text| *text != "-0");
        let number = text.and_then(|text| text.parse().ok()).and_then(within);
        let number = number.ok_or_else(|| self.refuse(name, format_args!("must be {expected}")))?;
        Ok(Some(number))
    }

    /// A text that parses as `T`; the empty string counts as absent, as agents in Go write it.
    pub(crate) fn text<T>(&self, name: &str) -> Result<Option<T>, Refusal>
    where
        T: TryFrom<String>,
        T::Error: fmt::Display,
    {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        let text = match plain(raw.get()) {
            Some(text) => text.to_owned(),
            None => serde_json::from_str(raw.get()).map_err(|_| self.refuse(name, "must be a string"))?,
        };
        if text.is_empty() {
            return Ok(None);
        }
        T::try_from(text).map(Some).map_err(|e| self.refuse(name, e))
    }

    /// A list of at most `max` values; absent is empty.
    pub(crate) fn list(&self, name: &str, max: usize) -> Result<Vec<&'a RawValue>, Refusal> {
        let Some(raw) = self.raw(name) else {
            return Ok(Vec::new());
        };
        let list: Vec<&'a RawValue> =
            serde_json::from_str(raw.get()).map_err(|_| self.refuse(name, "must be a list"))?;
        if list.len() > max {
            return Err(self.refuse(
                name,
                format_args!("has {} entries, at most {max} may be sent", list.len()),
            ));
        }
        Ok(list)
    }

    /// The object `name` within this one, its refusals with `code`.
    pub(crate) fn object(&self, name: &str, code: Code) -> Result<Option<Fields<'a>>, Refusal> {
        self.raw(name)
            .map(|raw| {
                if !raw.get().starts_with('{') {
                    return Err(Refusal::field(code, self.path(name), "must be an object"));
                }
                Fields::open(&self.path(name), code, raw)
            })
            .transpose()
    }
}

/// What a JSON string without escapes says; it was read as JSON before.
fn plain(raw: &str) -> Option<&str> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then_some(text)
}

const COUNT: &str = "an integer from 0 to 2147483647";
const AMOUNT: &str = "an integer from 0 to 9223372036854775807";

fn shown(path: &str) -> &str {
    if path.is_empty() { "heartbeat" } else { path }
}
