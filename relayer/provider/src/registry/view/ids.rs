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
    pub(super) fn put(&mut self, key: (ClusterId, NodeId), node: Arc<Node>) {
        // Only a new one costs anything here.
        if let Some(known) = self.nodes.get_mut(&key) {
            *known = node;
            return;
        }
        let ids = self.ids.entry(key.0.clone()).or_default();
        ids.insert(key.1.clone());
        self.nodes.insert(key, node);
    }

    pub(super) fn drop_node(&mut self, key: &(ClusterId, NodeId)) -> bool {
        if let Some(ids) = self.ids.get_mut(&key.0) {
            ids.remove(&key.1);
            if ids.is_empty() {
                self.ids.remove(&key.0);
            }
        }
        self.nodes.remove(key).is_some()
    }
}

impl Registry {
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
        let clusters: Vec<ClusterId> = self.read().ids.keys().cloned().collect();
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
    let (address, port) = (node.contact.address?, node.contact.probe_port?);
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
