//! Reads a JSON object field by field, so that every refusal can name the path of the field at fault.
//!
//! A key that stands twice is refused: two readers of the same signed bytes must not see two values.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::code::Code;
use crate::refusal::Refusal;

/// An object's own objects that are read with it: what stands in them is gone through once less.
pub(crate) const PARTS: [&str; 5] = ["capacity", "health", "latency", "jobs", "services"];

/// One JSON object, its values still unread but for [`PARTS`].
pub(crate) struct Entries<'a> {
    /// In the order of [`by_length`].
    map: Vec<(Key<'a>, Value<'a>)>,
    /// Whether a key stands twice.
    twice: bool,
}

/// A key of the object, borrowed unless it is written with escapes.
#[derive(PartialEq, Eq, Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

enum Value<'a> {
    Unread(&'a RawValue),
    Object(Entries<'a>),
    Null,
    /// None of these where an object is wanted.
    Other,
}

/// Most keys of an object differ in their length, which is told sooner than their bytes.
fn by_length(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Reads an object, with those of its own that stand under these names.
struct Object(&'static [&'static str]);

impl<'de> Visitor<'de> for Object {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::with_capacity(16);
        while let Some(key) = access.next_key::<Key<'de>>()? {
            let value = if self.0.contains(&&*key.0) {
                // At once: each would take memory.
                if map.iter().any(|(other, _)| *other == key) {
                    return Err(serde::de::Error::custom(TWICE));
                }
                access.next_value_seed(Part)?
            } else {
                Value::Unread(access.next_value()?)
            };
            map.push((key, value));
        }
        map.sort_unstable_by(|a, b| by_length(&a.0.0, &b.0.0));
        let twice = |pair: &[(Key<'_>, _)]| matches!(pair, [a, b] if a.0 == b.0);
        let twice = map.windows(2).any(twice);
        Ok(Entries { map, twice })
    }
}

/// Reads what should be an object.
struct Part;

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        Object(&[]).visit_map(access).map(Value::Object)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}

/// Where an object stands; written out only where something is refused.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    within: Option<&'a Place<'a>>,
    name: &'a str,
    /// In a list of that name.
    at: Option<usize>,
}

impl Place<'_> {
    /// The payload itself.
    pub(crate) const ROOT: Place<'static> = Place {
        within: None,
        name: "",
        at: None,
    };
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(within) = self.within.filter(|w| !w.name.is_empty()) {
            write!(f, "{within}.")?;
        }
        f.write_str(self.name)?;
        self.at.map_or(Ok(()), |at| write!(f, "[{at}]"))
    }
}

impl<'a> Entries<'a> {
    /// Reads the object at `place`, with those of its own that stand under the names `parts`.
    pub(crate) fn read(
        place: &Place<'_>,
        raw: &'a RawValue,
        parts: &'static [&'static str],
    ) -> Result<Self, Refusal> {
        let mut de = serde_json::Deserializer::from_str(raw.get());
        let entries = de
            .deserialize_map(Object(parts))
            .map_err(|e| Refusal::field(Code::Malformed, shown(place), e).malformed())?;
        entries.once(place)?;
        Ok(entries)
    }

    fn once(&self, place: &Place<'_>) -> Result<(), Refusal> {
        if self.twice {
            return Err(Refusal::field(Code::Malformed, shown(place), TWICE).malformed());
        }
        Ok(())
    }
}

/// The fields of an object.
pub(crate) struct Fields<'a> {
    place: Place<'a>,
    code: Code,
    entries: &'a Entries<'a>,
}

impl<'a> Fields<'a> {
    /// Of the object at `place`; refusals inside it carry `code`.
    pub(crate) fn new(place: Place<'a>, code: Code, entries: &'a Entries<'a>) -> Self {
        Self { place, code, entries }
    }

    /// Where the entry `at` of the list `name` stands.
    pub(crate) fn entry(&'a self, name: &'a str, at: usize) -> Place<'a> {
        Place {
            within: Some(&self.place),
            name,
            at: Some(at),
        }
    }

    /// The path of the field `name` of this object.
    pub(crate) fn path(&self, name: &str) -> String {
        let place = Place {
            within: Some(&self.place),
            name,
            at: None,
        };
        place.to_string()
    }

    /// A refusal of the field `name`.
    pub(crate) fn refuse(&self, name: &str, what: impl fmt::Display) -> Refusal {
        Refusal::field(self.code, self.path(name), what)
    }

    fn value(&self, name: &str) -> Option<&'a Value<'a>> {
        let map = &self.entries.map;
        let at = map.binary_search_by(|(key, _)| by_length(&key.0, name)).ok()?;
        map.get(at).map(|(_, value)| value)
    }

    /// The raw value; `null` counts as absent.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        match self.value(name)? {
            Value::Unread(raw) => (raw.get() != "null").then_some(*raw),
            Value::Object(_) | Value::Null | Value::Other => None,
        }
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

    /// The object `name` within this one, which was read with it ([`PARTS`]), its refusals with `code`.
    pub(crate) fn object(&'a self, name: &'a str, code: Code) -> Result<Option<Self>, Refusal> {
        let place = Place {
            within: Some(&self.place),
            name,
            at: None,
        };
        match self.value(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(entries)) => {
                entries.once(&place)?;
                Ok(Some(Self::new(place, code, entries)))
            }
            Some(Value::Unread(_) | Value::Other) => {
                Err(Refusal::field(code, place.to_string(), "must be an object"))
            }
        }
    }
}

/// What a JSON string without escapes says; it was read as JSON before.
fn plain(raw: &str) -> Option<&str> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then_some(text)
}

const TWICE: &str = "a key stands twice in the object";
const COUNT: &str = "an integer from 0 to 2147483647";
const AMOUNT: &str = "an integer from 0 to 9223372036854775807";

fn shown(place: &Place<'_>) -> String {
    if place.name.is_empty() {
        return "heartbeat".to_owned();
    }
    place.to_string()
}
