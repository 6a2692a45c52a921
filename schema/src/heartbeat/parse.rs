//! The payload as a whole, read from the raw JSON that is signed.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::fields::{Entries, Fields, PARTS, Place};
use super::value::Label;
use super::{Capacity, Health, Jobs, Latency, Services};
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::refusal::Refusal;
use crate::time::Rfc3339;

/// The payload of a heartbeat. What is absent is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Heartbeat {
    /// The node.
    pub node_id: NodeId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Rises with every heartbeat of an epoch: 1 to 2³²−1.
    pub sequence_number: NonZeroU32,
    /// When it was made, RFC 3339 with up to nanoseconds.
    pub timestamp: Rfc3339,
    /// The agent's version (semver).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<Label<32>>,
    /// What the node has and what of it is free.
    pub capacity: Capacity,
    /// How it is.
    pub health: Health,
    /// Round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Jobs>,
    /// Daemons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Services>,
}

/// What names the sender and the time: enough to check who signed, before the figures are read.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) node_id: NodeId,
    pub(crate) cluster_id: ClusterId,
    pub(crate) timestamp: Rfc3339,
}

/// A payload opened, its head read, the rest still raw.
pub(crate) struct Opened<'a> {
    entries: Entries<'a>,
    pub(crate) head: Head,
}

impl<'a> Opened<'a> {
    pub(crate) fn open(raw: &'a RawValue) -> Result<Self, Refusal> {
        let entries = Entries::read(&Place::ROOT, raw, &PARTS)?;
        let f = Fields::new(Place::ROOT, Code::InvalidField, &entries);
        let missing = |name: &str| f.refuse(name, "is required");
        let head = Head {
            node_id: f.text("node_id")?.ok_or_else(|| missing("node_id"))?,
            cluster_id: f.text("cluster_id")?.ok_or_else(|| missing("cluster_id"))?,
            timestamp: f.text("timestamp")?.ok_or_else(|| missing("timestamp"))?,
        };
        Ok(Self { entries, head })
    }

    pub(crate) fn finish(self) -> Result<Heartbeat, Refusal> {
        let Self { entries, head } = self;
        let f = Fields::new(Place::ROOT, Code::InvalidField, &entries);
        let sequence_number = sequence(&f)?;
        let part = |name: &'static str, code: Code| {
            f.object(name, code)?
                .ok_or_else(|| Refusal::field(code, name, "is required"))
        };
        Ok(Heartbeat {
            node_id: head.node_id,
            cluster_id: head.cluster_id,
            sequence_number,
            timestamp: head.timestamp,
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
        })
    }
}

fn sequence(f: &Fields<'_>) -> Result<NonZeroU32, Refusal> {
    let refuse = || {
        Refusal::field(
            Code::InvalidSequence,
            "sequence_number",
            "must be 1 to 4294967295",
        )
    };
    let raw = f.raw("sequence_number").ok_or_else(refuse)?;
    // The specification's type is uint64; what a report can carry is 32 bits.
    let n: u64 = serde_json::from_str(raw.get()).map_err(|_| refuse())?;
    u32::try_from(n).ok().and_then(NonZeroU32::new).ok_or_else(refuse)
}

impl Heartbeat {
    /// Reads and checks a payload. Time is judged apart, by [`super::check_window`].
    ///
    /// # Errors
    /// A malformed [`Refusal`] if it is not a JSON object or a key stands twice; else a semantic one with
    /// the path of the first field that breaks its rule.
    pub fn parse(raw: &RawValue) -> Result<Self, Refusal> {
        Opened::open(raw)?.finish()
    }

    /// The rules that bind several fields, for payloads built in memory; the types hold all others.
    ///
    /// # Errors
    /// As [`Capacity::check`]; lists that are too long.
    pub fn check(&self) -> Result<(), Refusal> {
        self.capacity.check()?;
        let too_long = |field: &str, max: usize| {
            Refusal::field(
                Code::InvalidField,
                field,
                format_args!("at most {max} entries may be sent"),
            )
        };
        if self
            .latency
            .as_ref()
            .is_some_and(|l| l.measurements.len() > super::MAX_MEASUREMENTS)
        {
            return Err(too_long("latency.measurements", super::MAX_MEASUREMENTS));
        }
        if self
            .jobs
            .as_ref()
            .is_some_and(|j| j.active_job_ids.len() > super::MAX_ACTIVE_JOBS)
        {
            return Err(too_long("jobs.active_job_ids", super::MAX_ACTIVE_JOBS));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "parse_tests/mod.rs"]
pub(crate) mod tests;
