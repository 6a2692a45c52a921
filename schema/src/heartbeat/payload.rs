//! The payload as a whole.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Serialize;

use super::value::{Label, or_empty};
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
    #[schemars(transform = or_empty)]
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

impl Heartbeat {
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
