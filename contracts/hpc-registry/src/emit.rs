//! Events of the schema as the chain takes them.

use cosmwasm_std::{Addr, Response, to_json_string};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HotRecord, NodeState, Prior, Transition};
use hpc_schema::registry::{Event, JobsStatus, NodeIds};
use hpc_schema::time::UnixSeconds;
use serde::Serialize;

use crate::error::ContractError;

/// What is told of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Arrow(Transition),
    Jobs(JobsStatus),
}

/// A node's way from one record to the next, in words in their order.
#[derive(Debug)]
pub(crate) struct Passage {
    node_id: NodeId,
    words: Vec<Word>,
}

impl Passage {
    /// The arrows from `before` to `after`, with what becomes of the node's jobs.
    pub(crate) fn new(
        node_id: NodeId,
        (before, after): (Option<&HotRecord>, &HotRecord),
        transitions: &[Transition],
    ) -> Self {
        let had_jobs = before.is_some_and(|r| r.has_jobs);
        let mut standing = before.map_or(JobsStatus::Normal, HotRecord::jobs_status);
        let mut words = Vec::with_capacity(transitions.len() + 1);
        for t in transitions {
            words.push(Word::Arrow(*t));
            if t.from == Some(NodeState::Deregistered) {
                // It begins anew; what failed has failed.
                standing = JobsStatus::Normal;
            }
            if let Some(status) = t.jobs(had_jobs) {
                standing = status;
                words.push(Word::Jobs(status));
            }
        }
        // A report too old to bring a node back may still say that jobs run on it, or none any more.
        if after.jobs_status() != standing {
            words.push(Word::Jobs(after.jobs_status()));
        }
        Self { node_id, words }
    }
}

/// Collects events in the order in which things happened.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<cosmwasm_std::Event>);

impl Events {
    pub(crate) fn push(&mut self, event: Event) {
        let named = cosmwasm_std::Event::new(event.ty());
        self.0.push(named.add_attributes(event.into_attributes()));
    }

    /// Tells of nodes of one cluster: first the first words of all, then the second ones, and so on; what is the same
    /// of several stands in one event. Each node's own words keep their order.
    pub(crate) fn passages(&mut self, cluster_id: &ClusterId, nodes: &[Passage], now: UnixSeconds) {
        let longest = nodes.iter().map(|n| n.words.len()).max().unwrap_or(0);
        for nth in 0..longest {
            let mut told: Vec<(Word, Vec<NodeId>)> = Vec::new();
            for node in nodes {
                let Some(word) = node.words.get(nth) else {
                    continue;
                };
                match told.iter_mut().find(|(w, _)| w == word) {
                    Some((_, ids)) => ids.push(node.node_id.clone()),
                    None => told.push((*word, vec![node.node_id.clone()])),
                }
            }
            for (word, ids) in told {
                self.push(say(word, cluster_id.clone(), NodeIds(ids), now));
            }
        }
    }

    pub(crate) fn into_response(self) -> Response {
        Response::new().add_events(self.0)
    }
}

fn say(word: Word, cluster_id: ClusterId, node_id: NodeIds, now: UnixSeconds) -> Event {
    match word {
        Word::Arrow(t) => Event::Transition {
            cluster_id,
            node_id,
            from: Prior(t.from),
            to: t.to,
            reason: t.reason.as_str().to_owned(),
            time: now.0,
        },
        Word::Jobs(status) => Event::Jobs {
            cluster_id,
            node_id,
            status: match status {
                JobsStatus::Normal => "normal",
                JobsStatus::AtRisk => "at_risk",
                JobsStatus::Failed => "failed",
            }
            .to_owned(),
            time: now.0,
        },
    }
}

/// A cluster's change; `value` holds from now on.
pub(crate) fn cluster(
    cluster_id: ClusterId,
    action: &str,
    by: &Addr,
    value: &impl Serialize,
) -> Result<Response, ContractError> {
    Ok(single(Event::ClusterChange {
        cluster_id,
        action: action.to_owned(),
        by: by.to_string(),
        value: to_json_string(value)?,
    }))
}

/// A change of administration or parameters; `value` holds from now on.
pub(crate) fn admin(action: &str, by: &Addr, value: &impl Serialize) -> Result<Response, ContractError> {
    Ok(single(Event::Admin {
        action: action.to_owned(),
        by: by.to_string(),
        value: to_json_string(value)?,
    }))
}

/// A response with one event.
pub(crate) fn single(event: Event) -> Response {
    let mut events = Events::default();
    events.push(event);
    events.into_response()
}
