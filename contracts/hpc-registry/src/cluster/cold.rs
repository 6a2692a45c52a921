//! What of a cluster rarely changes.

use cosmwasm_std::{Addr, Storage};
use cw_storage_plus::Map;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;
use hpc_schema::registry::{Coin, JobIds};
use hpc_schema::time::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::error::{ContractError, refuse};
use crate::keys;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterInfo {
    pub(crate) owner: Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proposed_owner: Option<Addr>,
    pub(crate) operators: Vec<Addr>,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_public_key: Option<AgentKey>,
    pub(crate) job_ids: JobIds,
    pub(crate) created_at: UnixSeconds,
    /// Paid at the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deposit: Option<Coin>,
}

const CLUSTERS: Map<&str, ClusterInfo> = Map::new("cluster");

impl ClusterInfo {
    pub(crate) fn load(storage: &dyn Storage, id: &ClusterId) -> Result<Self, ContractError> {
        match CLUSTERS.may_load(storage, id.as_str())? {
            Some(info) => Ok(info),
            None => refuse(Code::UnknownCluster, format!("cluster_id {id} is not on record")),
        }
    }

    pub(crate) fn exists(storage: &dyn Storage, id: &ClusterId) -> bool {
        CLUSTERS.has(storage, id.as_str())
    }

    pub(crate) fn save(&self, storage: &mut dyn Storage, id: &ClusterId) -> Result<(), ContractError> {
        Ok(CLUSTERS.save(storage, id.as_str(), self)?)
    }

    /// Owner or operator.
    pub(crate) fn is_staff(&self, who: &Addr) -> bool {
        self.owner == *who || self.operators.contains(who)
    }
}

/// Clusters in order of their ids, after `start_after`.
pub(crate) fn list<'a>(
    storage: &'a dyn Storage,
    start_after: Option<&'a str>,
) -> impl Iterator<Item = Result<(ClusterId, ClusterInfo), ContractError>> + 'a {
    let from = start_after.map(cw_storage_plus::Bound::exclusive);
    CLUSTERS
        .range(storage, from, None, cosmwasm_std::Order::Ascending)
        .map(|entry| {
            let (id, info) = entry?;
            Ok((id.parse()?, info))
        })
}

/// Hands out the next cluster number.
pub(crate) fn next_index(storage: &mut dyn Storage, id: &ClusterId) -> u32 {
    let index = count(storage);
    storage.set(keys::CLUSTER_COUNT, &index.saturating_add(1).to_be_bytes());
    storage.set(&keys::cluster_id(index), id.as_str().as_bytes());
    index
}

/// Forgets a cluster; its number stays used.
pub(crate) fn remove(storage: &mut dyn Storage, id: &ClusterId, index: u32) {
    CLUSTERS.remove(storage, id.as_str());
    storage.remove(&keys::cluster_id(index));
}

/// Clusters ever created; some may be closed.
pub(crate) fn count(storage: &dyn Storage) -> u32 {
    storage
        .get(keys::CLUSTER_COUNT)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

/// The id behind a number; `None` if the cluster is closed.
pub(crate) fn id_of(storage: &dyn Storage, index: u32) -> Result<Option<ClusterId>, ContractError> {
    let corrupt = ContractError::Corrupt {
        what: "a cluster's id",
    };
    match storage.get(&keys::cluster_id(index)) {
        None => Ok(None),
        Some(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| ContractError::Corrupt {
                what: "a cluster's id",
            })?;
            text.parse().map(Some).map_err(|_| corrupt)
        }
    }
}
