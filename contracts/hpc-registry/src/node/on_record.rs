//! A node on record, to be changed by a message of its own.

use cosmwasm_std::{Deps, DepsMut, Response};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::{HotRecord, Transition};
use hpc_schema::time::UnixSeconds;

use super::resolve::{self, Located};
use super::{change, page};
use crate::cluster::ClusterHot;
use crate::emit::Events;
use crate::error::{ContractError, refuse};

/// A node with its record and its cluster.
#[derive(Debug)]
pub(crate) struct OnRecord {
    pub(crate) node: Located,
    pub(crate) record: HotRecord,
    cluster: ClusterHot,
}

impl OnRecord {
    pub(crate) fn load(
        deps: Deps<'_>,
        cluster_id: Option<&ClusterId>,
        node_id: &NodeId,
    ) -> Result<Self, ContractError> {
        let node = resolve::node(deps.storage, cluster_id, node_id)?;
        let cluster = ClusterHot::load(deps.storage, &node.cluster_id)?;
        let record = page::record_at(deps.storage, node.place)?.ok_or(ContractError::Corrupt {
            what: "a node's record",
        })?;
        Ok(Self {
            node,
            record,
            cluster,
        })
    }

    /// What the lifecycle says, a refusal in words.
    pub(crate) fn judged<T>(&self, verdict: Result<T, Code>) -> Result<T, ContractError> {
        verdict.or_else(|code| {
            let Located {
                node_id, cluster_id, ..
            } = &self.node;
            let state = self.record.state;
            refuse(code, format!("node {node_id} of cluster {cluster_id} is {state}"))
        })
    }

    /// Writes the record after, and tells of it behind `events`.
    pub(crate) fn change(
        mut self,
        deps: DepsMut<'_>,
        (after, arrows): (HotRecord, Vec<Transition>),
        now: UnixSeconds,
        mut events: Events,
    ) -> Result<Response, ContractError> {
        change::record(
            deps.storage,
            &self.node,
            &mut self.cluster,
            (Some(self.record), after),
            &arrows,
            now,
            &mut events,
        )?;
        Ok(events.into_response())
    }
}
