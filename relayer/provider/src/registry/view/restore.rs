use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};

use super::super::node::{Contact, Node};
use super::Registry;

impl Registry {
    /// What was read at `height` of this node could not be stored: as before, so that the next read finds it news again.
    /// What came from the node meanwhile stays.
    pub(in crate::registry) fn restore(
        &self,
        cluster: &ClusterId,
        node: &NodeId,
        before: Option<&Arc<Node>>,
        height: u64,
    ) {
        let key = (cluster.clone(), node.clone());
        let mut inner = self.write();
        match (inner.get_mut(cluster, node), before) {
            (Some(now), _) if now.height != height => {}
            (Some(now), Some(before)) => {
                let now = Arc::make_mut(now);
                let (acked, received_at) = (now.acked, now.received_at);
                let contact = Contact {
                    order: before.contact.order.clone(),
                    ..now.contact.clone()
                };
                *now = Node {
                    contact,
                    ..Node::clone(before)
                };
                // Sequences of another epoch say nothing.
                if now.chain.epoch == before.chain.epoch {
                    now.acked = now.acked.max(acked);
                }
                now.received_at = now.received_at.max(received_at);
            }
            (Some(_), None) => {
                inner.drop_node(&key);
                inner.dirty.remove(&key);
            }
            (None, Some(before)) => {
                inner.put(key, Arc::clone(before));
            }
            (None, None) => {}
        }
    }
}
