//! What a request needs of the registry, found under one lock.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use hpc_schema::code::Code;
use hpc_schema::gateway::Peer;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{Cluster, Params};
use hpc_schema::time::UnixSeconds;

use super::super::node::Node;
use super::super::peers;
use super::cluster::OfCluster;
use super::members::Place;
use super::{Inner, Registry, Tip};

/// A node by its names, and by its place for who asks for it again and again.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterId,
    /// Its id.
    pub node: &'a NodeId,
    /// Its place, from the first time on that it is known; of no other node. None: it is looked up each time.
    pub held: Option<&'a OnceLock<Place>>,
}

impl<'a> Whose<'a> {
    /// By its names alone.
    #[must_use]
    pub fn named(cluster: &'a ClusterId, node: &'a NodeId) -> Self {
        Self {
            cluster,
            node,
            held: None,
        }
    }
}

/// A node and its cluster at one moment. To be let go of soon: a node that changes while it is held is copied.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// None: it is not known.
    pub node: Option<Arc<Node>>,
    /// None: it is not known.
    pub cluster: Option<Arc<Cluster>>,
}

/// What a node is told of itself and of what is around it, at one moment. To be let go of soon, too.
#[derive(Debug, Clone)]
pub struct Around {
    /// The node and its cluster.
    pub seen: Seen,
    /// The parameters, or the defaults until they have been read.
    pub params: Arc<Params>,
    /// The newest block seen.
    pub tip: Tip,
    peers: Arc<Vec<Peer>>,
}

impl Around {
    /// `k` neighbours of `node`, which is of this cluster, to measure latency to.
    #[must_use]
    pub fn neighbours(&self, node: &NodeId, k: u8, now: UnixSeconds) -> Vec<Peer> {
        peers::neighbours(&self.peers, node, k, now)
    }
}

impl OfCluster {
    fn place(&self, whose: Whose<'_>) -> Option<Place> {
        let once = OnceLock::new();
        self.nodes.place(whose.node, whose.held.unwrap_or(&once))
    }

    fn seen(&self, node: Option<Arc<Node>>) -> Seen {
        Seen {
            node,
            cluster: self.record.clone(),
        }
    }

    fn node(&self, whose: Whose<'_>) -> Option<Arc<Node>> {
        self.nodes.node_at(self.place(whose)?).cloned()
    }
}

impl Inner {
    fn around(&self, whose: Whose<'_>) -> Around {
        let of = self.clusters.get(whose.cluster);
        Around {
            seen: of.map(|of| of.seen(of.node(whose))).unwrap_or_default(),
            params: Arc::clone(&self.params),
            tip: self.tip,
            peers: of.map(|of| Arc::clone(&of.peers)).unwrap_or_default(),
        }
    }

    /// Has `f` change a node, if it is known, and note whether that has to be written; what is around it then.
    pub(super) fn change(&mut self, whose: Whose<'_>, f: impl FnOnce(&mut Node) -> bool) -> Around {
        let Some(of) = self.clusters.get_mut(whose.cluster) else {
            return self.around(whose);
        };
        let mut unwritten = false;
        let place = of.place(whose);
        let changed = place.and_then(|at| of.nodes.node_at_mut(at)).map(|entry| {
            unwritten = f(Arc::make_mut(entry));
            Arc::clone(entry)
        });
        if unwritten {
            self.dirty.insert((whose.cluster.clone(), whose.node.clone()));
        }
        Around {
            seen: of.seen(changed),
            params: Arc::clone(&self.params),
            tip: self.tip,
            peers: Arc::clone(&of.peers),
        }
    }
}

impl Registry {
    /// A node and its cluster.
    #[must_use]
    pub fn seen(&self, whose: Whose<'_>) -> Seen {
        let inner = self.read();
        let of = inner.clusters.get(whose.cluster);
        of.map(|of| of.seen(of.node(whose))).unwrap_or_default()
    }

    /// What is around a node.
    #[must_use]
    pub fn around(&self, whose: Whose<'_>) -> Around {
        self.read().around(whose)
    }

    /// A heartbeat of the node was accepted; what is around it then.
    pub fn accepted(&self, whose: Whose<'_>, epoch: u64, sequence: u32, now_ms: u64, from: IpAddr) -> Around {
        self.write().change(whose, |n| {
            // The clock may have been put back since the one before.
            if n.chain.epoch == epoch && sequence > n.acked {
                n.acked = sequence;
                n.received_at = now_ms;
            }
            let moved = n.contact.address != Some(from);
            n.contact.address = Some(from);
            moved
        })
    }

    /// A heartbeat of the node was turned away; what is around it then.
    pub fn turned_away(&self, whose: Whose<'_>, code: Code, now_ms: u64) -> Around {
        self.write().change(whose, |n| {
            n.contact.refusal = Some((code, now_ms));
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::scene::view;

    #[test]
    fn an_answer_has_the_node_as_the_heartbeat_left_it_and_the_node_is_not_copied_for_that() {
        let registry = Registry::new("c", "k");
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), view().node_id);
        let from = [192, 0, 2, 7].into();
        let whose = Whose::named(&cluster, &node);
        // Of a node that is not known nothing is kept.
        assert!(registry.accepted(whose, 1, 2, 5, from).seen.node.is_none());
        assert!(registry.node(&cluster, &node).is_none() && registry.take_dirty().is_empty());
        registry.set_node(&cluster, view(), 1, UnixSeconds(0)).unwrap();
        registry.set_tip(Tip {
            height: 9,
            ..Tip::default()
        });
        let at = || Arc::as_ptr(&registry.node(&cluster, &node).unwrap());
        let before = at();
        for sequence in 2..5 {
            let around = registry.accepted(whose, 1, sequence, 1_000, from);
            let told = around.seen.node.as_ref().unwrap();
            assert_eq!(
                (told.acked, told.floor(), told.received_at),
                (sequence, sequence, 1_000)
            );
            assert_eq!(around.tip.height, 9);
            let again = registry.around(whose).seen.node.unwrap();
            assert!(Arc::ptr_eq(told, &again));
        }
        assert_eq!(at(), before);
        assert_eq!(registry.take_dirty().len(), 1);
    }
}
