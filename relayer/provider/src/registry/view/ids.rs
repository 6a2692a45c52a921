//! Nodes in the order of their ids, for who goes through all of them now and then.

use std::collections::HashMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use hpc_schema::gateway::Peer;
use hpc_schema::id::{ClusterId, NodeId};
use tokio::task::yield_now;

use super::super::node::Node;
use super::members::Members;
use super::{Inner, PEER_SILENCE_MS, Registry};

/// Nodes looked at before others have their turn: answers wait for it.
const SLICE: usize = 256;

impl Inner {
    pub(super) fn get(&self, cluster: &ClusterId, node: &NodeId) -> Option<&Arc<Node>> {
        self.clusters.get(cluster)?.nodes.get(node)
    }

    pub(super) fn get_mut(&mut self, cluster: &ClusterId, node: &NodeId) -> Option<&mut Arc<Node>> {
        self.clusters.get_mut(cluster)?.nodes.get_mut(node)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.clusters.values().flat_map(|of| of.nodes.iter())
    }

    pub(super) fn put(&mut self, (cluster, id): (ClusterId, NodeId), node: Arc<Node>) {
        // Only a new one costs anything here.
        if let Some(known) = self.get_mut(&cluster, &id) {
            *known = node;
            return;
        }
        let of = self.clusters.entry(cluster).or_default();
        of.ids.insert(id.clone());
        of.nodes.add(id, node);
    }

    pub(super) fn drop_node(&mut self, (cluster, id): &(ClusterId, NodeId)) -> bool {
        let Some(of) = self.clusters.get_mut(cluster) else {
            return false;
        };
        of.ids.remove(id);
        let dropped = of.nodes.remove(id);
        if of.nodes.is_empty() {
            // With the places that thousands may have had.
            of.nodes = Members::default();
        }
        dropped
    }
}

impl Registry {
    /// The clusters that have a node.
    pub(in crate::registry) fn clusters_with_nodes(&self) -> Vec<ClusterId> {
        let inner = self.read();
        let with_nodes = inner.clusters.iter().filter(|(_, of)| !of.ids.is_empty());
        with_nodes.map(|(id, _)| id.clone()).collect()
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
        let Some(ids) = inner.clusters.get(cluster).map(|of| &of.ids) else {
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
        let of = inner.clusters.get(cluster).into_iter();
        let next = of.flat_map(|of| of.ids.range((from.clone(), Unbounded)));
        next.take(most).cloned().collect()
    }

    /// Has `look` see every node, cluster by cluster, in pieces, so that answers do not wait for it. `look` must not ask the
    /// registry, which it holds.
    pub async fn each(&self, mut look: impl FnMut(&Arc<Node>)) {
        for cluster in self.clusters_with_nodes() {
            let mut from: usize = 0;
            while self.look_at(&cluster, from, &mut look) {
                from = from.saturating_add(SLICE);
                yield_now().await;
            }
        }
    }

    /// Has `look` see the next nodes of a cluster; whether there may be more.
    fn look_at(&self, cluster: &ClusterId, from: usize, look: &mut impl FnMut(&Arc<Node>)) -> bool {
        let inner = self.read();
        let piece = inner
            .clusters
            .get(cluster)
            .map_or(&[][..], |of| of.nodes.piece(from, SLICE));
        piece.iter().filter_map(|spot| spot.node.as_ref()).for_each(look);
        piece.len() == SLICE
    }

    /// The nodes that are so, those of a cluster together.
    pub async fn those(&self, so: impl Fn(&Node) -> bool) -> Vec<Arc<Node>> {
        let mut all = Vec::new();
        let look = |node: &Arc<Node>| {
            if so(node) {
                all.push(Arc::clone(node));
            }
        };
        self.each(look).await;
        all
    }

    /// Draws up anew who can be measured.
    pub async fn refresh_peers(&self, now_ms: u64) {
        let mut all = HashMap::new();
        for cluster in self.clusters_with_nodes() {
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
        // Thousands of them are freed in pieces as well.
        for mut peers in self.set_peers(all).into_iter().filter_map(Arc::into_inner) {
            while !peers.is_empty() {
                peers.truncate(peers.len().saturating_sub(SLICE));
                yield_now().await;
            }
        }
    }

    /// Those of all clusters at once; who was it before.
    fn set_peers(&self, mut all: HashMap<ClusterId, Arc<Vec<Peer>>>) -> Vec<Arc<Vec<Peer>>> {
        let mut inner = self.write();
        let each = inner.clusters.iter_mut();
        each.map(|(id, of)| std::mem::replace(&mut of.peers, all.remove(id).unwrap_or_default()))
            .collect()
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
