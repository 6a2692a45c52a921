//! Events of the schema as the chain takes them.

use cosmwasm_std::Response;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HotRecord, Prior, Transition};
use hpc_schema::registry::{Event, JobsStatus};
use hpc_schema::time::UnixSeconds;

/// Collects events in the order in which things happened.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<cosmwasm_std::Event>);

impl Events {
    pub(crate) fn push(&mut self, event: &Event) {
        self.0
            .push(cosmwasm_std::Event::new(event.ty()).add_attributes(event.attributes()));
    }

    /// The arrows of one node, with what they do to the jobs it had in `before`.
    pub(crate) fn transitions(
        &mut self,
        cluster_id: &ClusterId,
        node_id: &NodeId,
        before: Option<&HotRecord>,
        transitions: &[Transition],
        now: UnixSeconds,
    ) {
        for t in transitions {
            self.push(&Event::Transition {
                cluster_id: cluster_id.clone(),
                node_id: node_id.clone(),
                from: Prior(t.from),
                to: t.to,
                reason: t.reason.as_str().to_owned(),
                time: now.0,
            });
            if let Some(status) = t.jobs(before.is_some_and(|r| r.has_jobs)) {
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
        }
    }

    pub(crate) fn into_response(self) -> Response {
        Response::new().add_events(self.0)
    }
}

/// A response with one event.
pub(crate) fn single(event: &Event) -> Response {
    let mut events = Events::default();
    events.push(event);
    events.into_response()
}
