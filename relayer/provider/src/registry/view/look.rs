//! What a request needs of the registry, found under one lock.

use std::net::IpAddr;
use std::sync::Arc;

use hpc_schema::gateway::Peer;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{Cluster, Params};
use hpc_schema::time::UnixSeconds;

use super::super::node::Node;
use super::super::peers;
use super::{Inner, Registry, Tip};

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

impl Inner {
    fn around(&self, cluster: &ClusterId, node: &NodeId) -> Around {
        let of = self.clusters.get(cluster);
        Around {
            seen: Seen {
                node: of.and_then(|of| of.nodes.get(node)).cloned(),
                cluster: of.and_then(|of| of.record.clone()),
            },
            params: Arc::clone(&self.params),
            tip: self.tip,
            peers: of.map(|of| Arc::clone(&of.peers)).unwrap_or_default(),
        }
    }

    /// Has `f` change a node, if it is known, and note whether that has to be written; what is around it then.
    pub(super) fn change(
        &mut self,
        cluster: &ClusterId,
        node: &NodeId,
        f: impl FnOnce(&mut Node) -> bool,
    ) -> Around {
        let Some(of) = self.clusters.get_mut(cluster) else {
            return self.around(cluster, node);
        };
        let mut unwritten = false;
        let changed = of.nodes.get_mut(node).map(|entry| {
            unwritten = f(Arc::make_mut(entry));
            Arc::clone(entry)
        });
        if unwritten {
            self.dirty.insert((cluster.clone(), node.clone()));
        }
        Around {
            seen: Seen {
                node: changed,
                cluster: of.record.clone(),
            },
            params: Arc::clone(&self.params),
            tip: self.tip,
            peers: Arc::clone(&of.peers),
        }
    }
}

impl Registry {
    /// A node and its cluster.
    #[must_use]
    pub fn seen(&self, cluster: &ClusterId, node: &NodeId) -> Seen {
        let inner = self.read();
        let Some(of) = inner.clusters.get(cluster) else {
            return Seen::default();
        };
        Seen {
            node: of.nodes.get(node).cloned(),
            cluster: of.record.clone(),
        }
    }

    /// What is around a node.
    #[must_use]
    pub fn around(&self, cluster: &ClusterId, node: &NodeId) -> Around {
        self.read().around(cluster, node)
    }

    /// A heartbeat of the node was accepted; what is around it then.
    pub fn accepted(
        &self,
        cluster: &ClusterId,
        node: &NodeId,
        epoch: u64,
        sequence: u32,
        now_ms: u64,
        from: IpAddr,
    ) -> Around {
        self.write().change(cluster, node, |n| {
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
        // Of a node that is not known nothing is kept.
        assert!(
            registry
                .accepted(&cluster, &node, 1, 2, 5, from)
                .seen
                .node
                .is_none()
        );
        assert!(registry.node(&cluster, &node).is_none() && registry.take_dirty().is_empty());
        registry.set_node(&cluster, view(), 1, UnixSeconds(0)).unwrap();
        registry.set_tip(Tip {
            height: 9,
            ..Tip::default()
        });
        let at = || Arc::as_ptr(&registry.node(&cluster, &node).unwrap());
        let before = at();
        for sequence in 2..5 {
            let around = registry.accepted(&cluster, &node, 1, sequence, 1_000, from);
            let told = around.seen.node.as_ref().unwrap();
            assert_eq!(
                (told.acked, told.floor(), told.received_at),
                (sequence, sequence, 1_000)
            );
            assert_eq!(around.tip.height, 9);
            let again = registry.around(&cluster, &node).seen.node.unwrap();
            assert!(Arc::ptr_eq(told, &again));
        }
        assert_eq!(at(), before);
        assert_eq!(registry.take_dirty().len(), 1);
    }
}
