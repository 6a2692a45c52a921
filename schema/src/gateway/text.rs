//! 64-bit integers as strings in JSON: JavaScript's numbers end at 2⁵³. A number is read as well.

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(n: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(n)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(d)? {
        Either::Number(n) => Ok(n),
        Either::Text(s) => s
            .parse()
            .map_err(|_| serde::de::Error::custom("not a u64 as a string")),
    }
}
