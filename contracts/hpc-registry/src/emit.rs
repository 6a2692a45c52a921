//! Events of the schema as the chain takes them.

use cosmwasm_std::{Addr, Response, to_json_string};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HotRecord, NodeState, Prior, Transition};
use hpc_schema::registry::{Event, JobsStatus};
use hpc_schema::time::UnixSeconds;
use serde::Serialize;

use crate::error::ContractError;

/// Collects events in the order in which things happened.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<cosmwasm_std::Event>);

impl Events {
    pub(crate) fn push(&mut self, event: &Event) {
        self.0
            .push(cosmwasm_std::Event::new(event.ty()).add_attributes(event.attributes()));
    }

    /// The arrows of one node from `before` to `after`, with what becomes of its jobs.
    pub(crate) fn transitions(
        &mut self,
        cluster_id: &ClusterId,
        node_id: &NodeId,
        (before, after): (Option<&HotRecord>, &HotRecord),
        transitions: &[Transition],
        now: UnixSeconds,
    ) {
        let had_jobs = before.is_some_and(|r| r.has_jobs);
        let mut standing = before.map_or(JobsStatus::Normal, HotRecord::jobs_status);
        for t in transitions {
            self.push(&Event::Transition {
                cluster_id: cluster_id.clone(),
                node_id: node_id.clone(),
                from: Prior(t.from),
                to: t.to,
                reason: t.reason.as_str().to_owned(),
                time: now.0,
            });
            if t.from == Some(NodeState::Deregistered) {
                // It begins anew; what failed has failed.
                standing = JobsStatus::Normal;
            }
            if let Some(status) = t.jobs(had_jobs) {
                standing = status;
                self.jobs(cluster_id, node_id, status, now);
            }
        }
        // A report too old to bring a node back may still say that jobs run on it, or none any more.
        if after.jobs_status() != standing {
            self.jobs(cluster_id, node_id, after.jobs_status(), now);
        }
    }

    fn jobs(&mut self, cluster_id: &ClusterId, node_id: &NodeId, status: JobsStatus, now: UnixSeconds) {
        self.push(&Event::Jobs {
            cluster_id: cluster_id.clone(),
            node_id: node_id.clone(),
            status: match status {
                JobsStatus::Normal => "normal",
                JobsStatus::AtRisk => "at_risk",
                JobsStatus::Failed => "failed",
            }
            .to_owned(),
            time: now.0,
        });
    }

    pub(crate) fn into_response(self) -> Response {
        Response::new().add_events(self.0)
    }
}

/// A cluster's change; `value` holds from now on.
pub(crate) fn cluster(
    cluster_id: ClusterId,
    action: &str,
    by: &Addr,
    value: &impl Serialize,
) -> Result<Response, ContractError> {
    Ok(single(&Event::ClusterChange {
        cluster_id,
        action: action.to_owned(),
        by: by.to_string(),
        value: to_json_string(value)?,
    }))
}

/// A change of administration or parameters; `value` holds from now on.
pub(crate) fn admin(action: &str, by: &Addr, value: &impl Serialize) -> Result<Response, ContractError> {
    Ok(single(&Event::Admin {
        action: action.to_owned(),
        by: by.to_string(),
        value: to_json_string(value)?,
    }))
}

/// A response with one event.
pub(crate) fn single(event: &Event) -> Response {
    let mut events = Events::default();
    events.push(event);
    events.into_response()
}
