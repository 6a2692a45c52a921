//! Reads the payload from the raw JSON that is signed.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::fields::Fields;
use super::payload::Heartbeat;
use super::raw::Payload;
use super::{Capacity, Health, Jobs, Latency, Services, whole};
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::refusal::Refusal;
use crate::time::Rfc3339;

/// What names the sender and the time: enough to check who signed, before what is wrong with the figures is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) node_id: &'a NodeId,
    pub(crate) cluster_id: &'a ClusterId,
    pub(crate) timestamp: &'a Rfc3339,
}

/// A payload opened, its head read.
pub(crate) enum Opened<'a> {
    /// All of it is as it should be.
    Whole(Arc<Heartbeat>),
    /// Something is not: which field is found one by one, once it is known who signed.
    InParts {
        node_id: NodeId,
        cluster_id: ClusterId,
        timestamp: Rfc3339,
        fields: Fields<'a>,
    },
}

impl<'a> Opened<'a> {
    pub(crate) fn open(payload: &'a Payload<'_>) -> Result<Self, Refusal> {
        let already = payload.heartbeat().map(Arc::clone);
        match already.or_else(|| whole::read(payload.get()).map(Arc::new)) {
            Some(heartbeat) => Ok(Self::Whole(heartbeat)),
            None => Self::in_parts(payload.get()),
        }
    }

    fn in_parts(text: &'a str) -> Result<Self, Refusal> {
        let fields = Fields::open("", Code::InvalidField, text)?;
        let missing = |name: &str| fields.refuse(name, "is required");
        Ok(Self::InParts {
            node_id: fields.text("node_id")?.ok_or_else(|| missing("node_id"))?,
            cluster_id: fields.text("cluster_id")?.ok_or_else(|| missing("cluster_id"))?,
            timestamp: fields.text("timestamp")?.ok_or_else(|| missing("timestamp"))?,
            fields,
        })
    }

    pub(crate) fn head(&self) -> Head<'_> {
        match self {
            Self::Whole(heartbeat) => Head {
                node_id: &heartbeat.node_id,
                cluster_id: &heartbeat.cluster_id,
                timestamp: &heartbeat.timestamp,
            },
            Self::InParts {
                node_id,
                cluster_id,
                timestamp,
                ..
            } => Head {
                node_id,
                cluster_id,
                timestamp,
            },
        }
    }

    pub(crate) fn finish(self) -> Result<Arc<Heartbeat>, Refusal> {
        let (node_id, cluster_id, timestamp, f) = match self {
            Self::Whole(heartbeat) => return Ok(heartbeat),
            Self::InParts {
                node_id,
                cluster_id,
                timestamp,
                fields,
            } => (node_id, cluster_id, timestamp, fields),
        };
        let sequence_number = sequence(&f)?;
        let part = |name: &str, code: Code| {
            f.object(name, code)?
                .ok_or_else(|| Refusal::field(code, name, "is required"))
        };
        Ok(Arc::new(Heartbeat {
            node_id,
            cluster_id,
            sequence_number,
            timestamp,
            agent_version: f.text("agent_version")?,
            capacity: Capacity::read(&part("capacity", Code::InvalidCapacity)?)?,
            health: Health::read(&part("health", Code::InvalidHealth)?)?,
            latency: f
                .object("latency", Code::InvalidField)?
                .map(|o| Latency::read(&o))
                .transpose()?,
            jobs: f
                .object("jobs", Code::InvalidField)?
                .map(|o| Jobs::read(&o))
                .transpose()?,
            services: f
                .object("services", Code::InvalidField)?
                .map(|o| Services::read(&o))
                .transpose()?,
        }))
    }
}

fn sequence(f: &Fields<'_>) -> Result<NonZeroU32, Refusal> {
    let refuse = |what: &str| Refusal::field(Code::InvalidSequence, "sequence_number", what);
    let raw = f.raw("sequence_number").ok_or_else(|| refuse("is required"))?;
    // The specification's type is uint64; what a report can carry is 32 bits.
    let n: u64 = serde_json::from_str(raw.get()).map_err(|_| {
        refuse("must be an integer from 1 to 4294967295, without quotes, fraction or exponent")
    })?;
    u32::try_from(n)
        .ok()
        .and_then(NonZeroU32::new)
        .ok_or_else(|| refuse("must be 1 to 4294967295"))
}

impl Heartbeat {
    /// Reads and checks a payload. Time is judged apart, by [`super::check_window`].
    ///
    /// # Errors
    /// A malformed [`Refusal`] if it is not a JSON object or a key stands twice; else a semantic one with
    /// the path of the first field that breaks its rule.
    pub fn parse(payload: &Payload<'_>) -> Result<Self, Refusal> {
        Opened::open(payload)?.finish().map(Arc::unwrap_or_clone)
    }
}

#[cfg(test)]
#[path = "parse_tests/mod.rs"]
pub(crate) mod tests;
