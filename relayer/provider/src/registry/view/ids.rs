//! Nodes in the order of their ids, for who goes through all of them now and then.

use std::collections::HashMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use hpc_schema::gateway::Peer;
use hpc_schema::id::{ClusterId, NodeId};
use tokio::task::yield_now;

use super::super::node::Node;
use super::{Inner, PEER_SILENCE_MS, Registry};

/// Nodes looked at before others have their turn: answers wait for it.
const SLICE: usize = 256;

impl Inner {
    pub(super) fn get(&self, cluster: &ClusterId, node: &NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(cluster)?.get(node)
    }

    pub(super) fn get_mut(&mut self, cluster: &ClusterId, node: &NodeId) -> Option<&mut Arc<Node>> {
        self.nodes.get_mut(cluster)?.get_mut(node)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values().flat_map(HashMap::values)
    }

    pub(super) fn put(&mut self, (cluster, id): (ClusterId, NodeId), node: Arc<Node>) {
        // Only a new one costs anything here.
        if let Some(known) = self.get_mut(&cluster, &id) {
            *known = node;
            return;
        }
        self.ids.entry(cluster.clone()).or_default().insert(id.clone());
        self.nodes.entry(cluster).or_default().insert(id, node);
    }

    pub(super) fn drop_node(&mut self, (cluster, id): &(ClusterId, NodeId)) -> bool {
        if let Some(ids) = self.ids.get_mut(cluster) {
            ids.remove(id);
            if ids.is_empty() {
                self.ids.remove(cluster);
            }
        }
        let Some(nodes) = self.nodes.get_mut(cluster) else {
            return false;
        };
        let dropped = nodes.remove(id).is_some();
        if nodes.is_empty() {
            self.nodes.remove(cluster);
        }
        dropped
    }
}

impl Registry {
    /// The clusters that have a node.
    pub(in crate::registry) fn clusters_with_nodes(&self) -> Vec<ClusterId> {
        self.read().ids.keys().cloned().collect()
    }

    /// Ids of a cluster's nodes in their order: at most so many after `last`, and after the very last the first; all of them
    /// from the first on if there are no more.
    pub(in crate::registry) fn turn(
        &self,
        cluster: &ClusterId,
        last: Option<&NodeId>,
        most: usize,
    ) -> Vec<NodeId> {
        let inner = self.read();
        let Some(ids) = inner.ids.get(cluster) else {
            return Vec::new();
        };
        let after = last
            .filter(|_| ids.len() > most)
            .map(|last| ids.range((Excluded(last.clone()), Unbounded)));
        let next = after.into_iter().flatten().chain(ids);
        next.take(most).cloned().collect()
    }

    /// The next ids after `last`, at most so many; none after the very last.
    pub(in crate::registry) fn ids_after(
        &self,
        cluster: &ClusterId,
        last: Option<NodeId>,
        most: usize,
    ) -> Vec<NodeId> {
        let inner = self.read();
        let from = last.map_or(Unbounded, Excluded);
        let ids = inner.ids.get(cluster).into_iter();
        let next = ids.flat_map(|ids| ids.range((from.clone(), Unbounded)));
        next.take(most).cloned().collect()
    }

    /// Draws up anew who can be measured.
    pub async fn refresh_peers(&self, now_ms: u64) {
        let clusters = self.clusters_with_nodes();
        let mut all = HashMap::new();
        for cluster in clusters {
            let (mut peers, mut last) = (Vec::new(), None);
            loop {
                let ids = self.ids_after(&cluster, last.take(), SLICE);
                let nodes = ids.iter().filter_map(|id| self.node(&cluster, id));
                peers.extend(nodes.filter_map(|node| peer(&node, now_ms)));
                last = ids.into_iter().last();
                if last.is_none() {
                    break;
                }
                yield_now().await;
            }
            if !peers.is_empty() {
                all.insert(cluster, Arc::new(peers));
            }
        }
        self.write().peers = all;
    }
}

/// Where a node can be measured, if it can.
fn peer(node: &Node, now_ms: u64) -> Option<Peer> {
    let contact = &node.contact;
    // What the node says counts: behind NAT, or in another network, it is not reached where it reports from.
    let address = contact.probe_address.or(contact.address)?;
    let port = contact.probe_port?;
    if node.is_deregistered() || now_ms.saturating_sub(node.received_at) > PEER_SILENCE_MS {
        return None;
    }
    Some(Peer {
        node_id: node.node_id.clone(),
        address: address.to_string(),
        port,
        public_key: *node.key(),
    })
}
