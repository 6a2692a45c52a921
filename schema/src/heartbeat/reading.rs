//! Reads JSON values in one pass, each under its rule.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{JobId, LatencyMeasurement, MAX_ACTIVE_JOBS, MAX_MEASUREMENTS};

/// The value that a text begins with, its own text, and what follows.
pub(super) fn first<'de, T: Deserialize<'de>>(text: &'de str) -> Option<(T, &'de str, &'de str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    let (own, rest) = text.split_at_checked(values.byte_offset())?;
    Some((value, own, rest))
}

/// What a JSON object says. A list is none, though serde would take one for a struct.
pub(super) trait Object: Sized {
    fn read<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error>;
}

pub(super) fn object<'de, T: Object, D: Deserializer<'de>>(de: D) -> Result<T, D::Error> {
    struct Map<T>(PhantomData<T>);
    impl<'de, T: Object> Visitor<'de> for Map<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::read(MapAccessDeserializer::new(map))
        }
    }
    de.deserialize_map(Map(PhantomData))
}

/// An object as a value of its own, for lists and options.
pub(super) struct Own<T>(pub(super) T);

impl<'de, T: Object> Deserialize<'de> for Own<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        object(de).map(Self)
    }
}

pub(super) fn some_object<'de, T: Object, D: Deserializer<'de>>(de: D) -> Result<Option<T>, D::Error> {
    let own = Option::<Own<T>>::deserialize(de)?;
    Ok(own.map(|Own(object)| object))
}

/// int32 of the specification, not negative.
pub(super) fn count<'de, D: Deserializer<'de>>(de: D) -> Result<u32, D::Error> {
    let n = u32::deserialize(de)?;
    i32::try_from(n).map(|_| n).map_err(D::Error::custom)
}

pub(super) fn some_count<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u32>, D::Error> {
    let n = Option::<u32>::deserialize(de)?;
    n.map(i32::try_from)
        .transpose()
        .map(|_| n)
        .map_err(D::Error::custom)
}

/// int64 of the specification, not negative.
pub(super) fn some_amount<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u64>, D::Error> {
    let n = Option::<u64>::deserialize(de)?;
    n.map(i64::try_from)
        .transpose()
        .map(|_| n)
        .map_err(D::Error::custom)
}

/// A text, of which the empty one counts as absent. What keeps none of it is read without a copy.
pub(super) fn text<'de, T, D>(de: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    struct Present<T>(PhantomData<T>);
    impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for Present<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_none<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<Option<T>, D::Error> {
            de.deserialize_str(self)
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
            let text = (!text.is_empty()).then_some(text);
            text.map(T::from_str).transpose().map_err(E::custom)
        }
    }
    de.deserialize_option(Present(PhantomData))
}

pub(super) fn measurements<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<LatencyMeasurement>, D::Error> {
    list(de, MAX_MEASUREMENTS, |Own(one): Own<LatencyMeasurement>| {
        one.is_whole().then_some(one)
    })
}

pub(super) fn job_ids<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<JobId>, D::Error> {
    list(de, MAX_ACTIVE_JOBS, Some)
}

/// A list of at most `max` that `take` takes; null is none.
fn list<'de, T, U, D>(de: D, max: usize, take: fn(T) -> Option<U>) -> Result<Vec<U>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<T, U>(usize, fn(T) -> Option<U>);
    impl<'de, T: Deserialize<'de>, U> Visitor<'de> for List<T, U> {
        type Value = Vec<U>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {} values", self.0)
        }
        fn visit_unit<E>(self) -> Result<Vec<U>, E> {
            Ok(Vec::new())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<U>, A::Error> {
            let mut list = Vec::new();
            while let Some(next) = seq.next_element()? {
                let taken = (self.1)(next).filter(|_| list.len() < self.0);
                list.push(taken.ok_or_else(|| A::Error::invalid_length(list.len(), &self))?);
            }
            Ok(list)
        }
    }
    de.deserialize_any(List(max, take))
}
