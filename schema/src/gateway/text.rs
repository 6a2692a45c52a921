//! 64-bit integers as strings in JSON: JavaScript's numbers end at 2⁵³.

use serde::{Deserialize as _, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(n: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(n)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    String::deserialize(d)?
        .parse()
        .map_err(|_| serde::de::Error::custom("not a u64 as a string"))
}
