//! The payload as it was sent.

use std::fmt;
use std::sync::Arc;

use serde::de::Deserializer;
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Heartbeat;

/// A payload as the text that was sent, for that is signed and hashed: one JSON value without white space around it. In JSON
/// it stands as it is. Of a body as agents write it, it is a part and no copy.
#[derive(Clone)]
pub struct Payload<'a>(Kept<'a>);

#[derive(Clone)]
enum Kept<'a> {
    Unread(Box<RawValue>),
    /// Its text, and what it says.
    Read(&'a str, Arc<Heartbeat>),
}

impl<'a> Payload<'a> {
    /// One that was read already: `heartbeat` is what `text` says.
    pub(super) fn read(text: &'a str, heartbeat: Heartbeat) -> Self {
        Self(Kept::Read(text, Arc::new(heartbeat)))
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        match &self.0 {
            Kept::Unread(raw) => raw.get(),
            Kept::Read(text, _) => text,
        }
    }

    /// What it says, if it was read already.
    pub(super) fn heartbeat(&self) -> Option<&Arc<Heartbeat>> {
        match &self.0 {
            Kept::Unread(_) => None,
            Kept::Read(_, heartbeat) => Some(heartbeat),
        }
    }
}

impl From<Box<RawValue>> for Payload<'_> {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Kept::Unread(raw))
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.get())
    }
}

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Kept::Unread(raw) => raw.serialize(ser),
            Kept::Read(text, _) => {
                let raw: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
                raw.serialize(ser)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Payload<'_> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(de).map(Self::from)
    }
}
