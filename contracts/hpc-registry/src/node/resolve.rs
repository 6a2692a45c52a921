//! From names to places.

use cosmwasm_std::{Order, Storage};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use crate::cluster::{ClusterHot, cold};
use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};

/// Clusters named in an `ambiguous_node` answer.
const MAX_NAMED: usize = 10;

/// A node on record.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) cluster_id: ClusterId,
    pub(crate) node_id: NodeId,
    pub(crate) place: Place,
}

/// Where a node of a cluster is, if it is on record.
pub(crate) fn place(
    storage: &dyn Storage,
    cluster: u32,
    node_id: &NodeId,
) -> Result<Option<Place>, ContractError> {
    match storage.get(&keys::node_place(node_id, cluster)).as_deref() {
        None => Ok(None),
        Some(&[p0, p1, slot]) => Ok(Some(Place {
            cluster,
            page: u16::from_be_bytes([p0, p1]),
            slot,
        })),
        Some(_) => Err(ContractError::Corrupt {
            what: "a node's place",
        }),
    }
}

/// Records where a node is, both ways.
pub(crate) fn save(storage: &mut dyn Storage, node_id: &NodeId, place: Place) {
    let [p0, p1] = place.page.to_be_bytes();
    storage.set(&keys::node_place(node_id, place.cluster), &[p0, p1, place.slot]);
    storage.set(&place.node_id(), node_id.as_str().as_bytes());
}

/// Forgets both ways.
pub(crate) fn remove(storage: &mut dyn Storage, node_id: &NodeId, place: Place) {
    storage.remove(&keys::node_place(node_id, place.cluster));
    storage.remove(&place.node_id());
}

/// The id of the node in a slot in use.
pub(crate) fn node_id(storage: &dyn Storage, place: Place) -> Result<NodeId, ContractError> {
    storage
        .get(&place.node_id())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| text.parse().ok())
        .ok_or(ContractError::Corrupt { what: "a node's id" })
}

/// The node of this name; without a cluster, the only one.
pub(crate) fn node(
    storage: &dyn Storage,
    cluster_id: Option<&ClusterId>,
    node_id: &NodeId,
) -> Result<Located, ContractError> {
    if let Some(cluster_id) = cluster_id {
        let index = ClusterHot::load(storage, cluster_id)?.index;
        return match place(storage, index, node_id)? {
            Some(place) => Ok(Located {
                cluster_id: cluster_id.clone(),
                node_id: node_id.clone(),
                place,
            }),
            None => refuse(
                Code::UnknownNode,
                format!("cluster {cluster_id} has no node {node_id}"),
            ),
        };
    }
    let (start, end) = keys::node_place_range(node_id);
    let mut found = Vec::new();
    for key in storage
        .range_keys(Some(&start), Some(&end), Order::Ascending)
        .take(MAX_NAMED)
    {
        let index = key.last_chunk::<4>().map(|b| u32::from_be_bytes(*b));
        let index = index.ok_or(ContractError::Corrupt {
            what: "a node's place",
        })?;
        let cluster_id = cold::id_of(storage, index)?.ok_or(ContractError::Corrupt {
            what: "a cluster's id",
        })?;
        found.push((index, cluster_id));
    }
    match &found[..] {
        [] => refuse(Code::UnknownNode, format!("no cluster has a node {node_id}")),
        [(index, cluster_id)] => match place(storage, *index, node_id)? {
            Some(place) => Ok(Located {
                cluster_id: cluster_id.clone(),
                node_id: node_id.clone(),
                place,
            }),
            None => Err(ContractError::Corrupt {
                what: "a node's place",
            }),
        },
        several => {
            let names: Vec<_> = several.iter().map(|(_, id)| id.as_str()).collect();
            let more = if names.len() == MAX_NAMED {
                " and perhaps more"
            } else {
                ""
            };
            refuse(
                Code::AmbiguousNode,
                format!("node_id {node_id} is in the clusters {}{more}", names.join(", ")),
            )
        }
    }
}
