//! Reads a JSON object field by field, so that every refusal can name the path of the field at fault.
//!
//! A key that stands twice is refused: two readers of the same signed bytes must not see two values.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::code::Code;
use crate::refusal::Refusal;

/// One JSON object, its values still unread.
pub(crate) struct Fields<'a> {
    path: String,
    code: Code,
    map: BTreeMap<String, &'a RawValue>,
}

struct Unique;

impl<'de> Visitor<'de> for Unique {
    type Value = BTreeMap<String, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = access.next_entry()? {
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom("a key stands twice in the object"));
            }
        }
        Ok(map)
    }
}

impl<'a> Fields<'a> {
    /// Opens the object at `path`, written as `text`; refusals inside it carry `code`.
    pub(crate) fn open(path: &str, code: Code, text: &'a str) -> Result<Self, Refusal> {
        let mut de = serde_json::Deserializer::from_str(text);
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

    /// The raw value; `null` counts as absent, and the empty text, as agents in Go write it.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let raw = *self.map.get(name)?;
        (!matches!(raw.get(), "null" | "\"\"")).then_some(raw)
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

    /// A number that `within` takes, or absent.
    pub(crate) fn number<N: DeserializeOwned, T>(
        &self,
        name: &str,
        expected: &str,
        within: impl Fn(N) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        self.optional(name, expected)?
            .map(|n| within(n).ok_or_else(|| self.refuse(name, format_args!("must be {expected}"))))
            .transpose()
    }

    /// A text that parses as `T`, or absent.
    pub(crate) fn text<T>(&self, name: &str) -> Result<Option<T>, Refusal>
    where
        T: TryFrom<String>,
        T::Error: fmt::Display,
    {
        self.optional(name, "a string")?
            .map(|text: String| T::try_from(text).map_err(|e| self.refuse(name, e)))
            .transpose()
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
                Fields::open(&self.path(name), code, raw.get())
            })
            .transpose()
    }
}

const COUNT: &str = "an integer from 0 to 2147483647";
const AMOUNT: &str = "an integer from 0 to 9223372036854775807";

fn shown(path: &str) -> &str {
    if path.is_empty() { "heartbeat" } else { path }
}
