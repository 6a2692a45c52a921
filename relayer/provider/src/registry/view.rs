mod cluster;
mod former;
mod ids;
mod look;
mod members;
mod restore;
mod unread;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{Cluster, Params, RelayView};
use hpc_schema::report::Tag;
use hpc_schema::time::UnixSeconds;

use super::node::{Contact, Node, Order, ProbeEndpoint};
use crate::spool::Intake;
use cluster::OfCluster;
use former::Former;

pub use look::{Around, Seen, Whose};
pub use members::Place;

/// A node that has not been heard of for so long is nobody's neighbour.
const PEER_SILENCE_MS: u64 = 180_000;

/// The chain's newest block as the gateway saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tip {
    /// Height; 0: none seen since the start.
    pub height: u64,
    /// Its time.
    pub time: UnixSeconds,
    /// Round trip of the request that told.
    pub latency_ms: Option<u64>,
}

/// The chain in memory. Readers get snapshots; no lock is held for longer than a look.
#[derive(Debug)]
pub struct Registry {
    chain_id: String,
    contract: String,
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tip: Tip,
    params: Arc<Params>,
    /// With their nodes: whoever looks one up has its two names, and no pair of them.
    clusters: HashMap<ClusterId, OfCluster>,
    former: Former,
    dirty: HashSet<(ClusterId, NodeId)>,
    reading: unread::Reading,
}

impl Registry {
    /// Of one contract, empty.
    #[must_use]
    pub fn new(chain_id: &str, contract: &str) -> Self {
        Self {
            chain_id: chain_id.to_owned(),
            contract: contract.to_owned(),
            inner: RwLock::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chain.
    #[must_use]
    pub fn chain_id(&self) -> &str {
        &self.chain_id
    }

    /// The contract's address.
    #[must_use]
    pub fn contract(&self) -> &str {
        &self.contract
    }

    /// One node.
    #[must_use]
    pub fn node(&self, cluster: &ClusterId, node: &NodeId) -> Option<Arc<Node>> {
        self.read().get(cluster, node).cloned()
    }

    /// Every node.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.read().all().cloned().collect()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read().clusters.values().map(|of| of.nodes.len()).sum()
    }

    /// The nodes of this id, of whatever cluster.
    #[must_use]
    pub fn namesakes(&self, node: &NodeId) -> Vec<Arc<Node>> {
        let inner = self.read();
        inner.all().filter(|n| n.node_id == *node).cloned().collect()
    }

    /// One cluster.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterId) -> Option<Arc<Cluster>> {
        self.read().clusters.get(cluster)?.record.clone()
    }

    /// The parameters, or the defaults until they have been read.
    #[must_use]
    pub fn params(&self) -> Arc<Params> {
        Arc::clone(&self.read().params)
    }

    /// The newest block seen.
    #[must_use]
    pub fn tip(&self) -> Tip {
        self.read().tip
    }

    /// A newer block.
    pub fn set_tip(&self, tip: Tip) {
        let mut inner = self.write();
        if tip.height >= inner.tip.height {
            inner.tip = tip;
        }
    }

    /// Parameters as read.
    pub fn set_params(&self, params: Params) {
        self.write().params = Arc::new(params);
    }

    /// A cluster as read.
    pub fn set_cluster(&self, cluster: Cluster) {
        let (id, job_ids) = (cluster.cluster_id.clone(), cluster.job_ids);
        let mut inner = self.write();
        let record = &mut inner.clusters.entry(id.clone()).or_default().record;
        let before = record.replace(Arc::new(cluster));
        if let Some(before) = before.filter(|b| b.job_ids != job_ids) {
            inner.former.note(id, before.job_ids, job_ids, Instant::now());
        }
    }

    /// A node as read at `height`; gives it back if that is news to be stored.
    ///
    /// An answer from below what is known is dropped: endpoints differ in height.
    pub fn set_node(
        &self,
        cluster: &ClusterId,
        view: RelayView,
        height: u64,
        now: UnixSeconds,
    ) -> Option<Arc<Node>> {
        let key = (cluster.clone(), view.node_id.clone());
        let mut inner = self.write();
        let before = inner.get(&key.0, &key.1).cloned();
        if before
            .as_ref()
            .is_some_and(|b| b.height > height || (b.chain == view && b.height == height))
        {
            return None;
        }
        let before_contact = before.as_ref().map(|b| b.contact.clone()).unwrap_or_default();
        let order = Order::next(
            before_contact.order.as_ref(),
            view.drain.as_ref(),
            view.epoch,
            now,
        );
        let contact = Contact {
            order,
            ..before_contact.clone()
        };
        let same_epoch = before.as_ref().filter(|b| b.chain.epoch == view.epoch);
        let (acked, received_at) = same_epoch.map_or((0, 0), |b| (b.acked, b.received_at));
        let refused = same_epoch
            .and_then(|b| b.refused)
            .filter(|(_, of)| *of > view.sequence);
        let changed = before.as_ref().is_none_or(|b| b.chain != view);
        let mut section_digest = [0; 16];
        if hex::decode_to_slice(&view.section_digest, &mut section_digest).is_err() {
            tracing::warn!(cluster = %cluster, node = %view.node_id, "the contract's section digest is no 16 bytes");
        }
        let node = Arc::new(Node {
            cluster_id: key.0.clone(),
            node_id: key.1.clone(),
            tag: Tag::derive(&self.chain_id, &self.contract, cluster, &view.node_id, view.epoch),
            section_digest,
            chain: view,
            height,
            contact,
            acked,
            received_at,
            refused,
        });
        if node.contact != before_contact {
            inner.dirty.insert(key.clone());
        }
        inner.put(key, Arc::clone(&node));
        changed.then_some(node)
    }

    /// A node's chain record is gone.
    pub fn remove_node(&self, cluster: &ClusterId, node: &NodeId) -> bool {
        self.write().drop_node(&(cluster.clone(), node.clone()))
    }

    /// What has been accepted of a node.
    pub fn set_intake(&self, intake: &Intake) {
        self.change(&intake.cluster_id, &intake.node_id, |n| {
            if n.chain.epoch == intake.epoch && intake.acked_sequence >= n.acked {
                n.acked = intake.acked_sequence;
                n.received_at = intake.received_at;
                n.refused = intake.refusal.filter(|(_, of)| *of > n.chain.sequence);
            }
            false
        });
    }

    /// What is known of a node beside the chain, as stored.
    pub fn set_contact(&self, cluster: &ClusterId, node: &NodeId, contact: Contact) {
        self.change(cluster, node, |n| {
            n.contact = contact;
            false
        });
    }

    /// An accepted report of the node was refused afterwards.
    pub fn refused(&self, cluster: &ClusterId, node: &NodeId, code: Code, sequence: u32) {
        self.change(cluster, node, |n| {
            n.refused = Some((code, sequence));
            false
        });
    }

    /// The node says where it answers latency probes.
    pub fn set_probe(&self, cluster: &ClusterId, node: &NodeId, probed: ProbeEndpoint) {
        self.change(cluster, node, |n| {
            n.contact.probe_port = probed.port;
            n.contact.probe_address = probed.address;
            n.contact.address = Some(probed.from);
            true
        });
    }

    /// What other gateways have kept of the node: its newest registration, and where it reports from. Of the latter what is not
    /// written yet here is newer.
    pub fn take_probe(&self, cluster: &ClusterId, node: &NodeId, kept: &Contact) {
        let mut inner = self.write();
        let unwritten = inner.dirty.contains(&(cluster.clone(), node.clone()));
        let Some(entry) = inner.get_mut(cluster, node) else {
            return;
        };
        let contact = &mut Arc::make_mut(entry).contact;
        contact.probe_port = kept.probe_port;
        contact.probe_address = kept.probe_address;
        if !unwritten {
            contact.address = kept.address.or(contact.address);
        }
    }

    fn change(&self, cluster: &ClusterId, node: &NodeId, f: impl FnOnce(&mut Node) -> bool) {
        self.write().change(Whose::named(cluster, node), f);
    }

    /// Nodes whose contact has changed since the last call.
    #[must_use]
    pub fn take_dirty(&self) -> Vec<Arc<Node>> {
        let mut inner = self.write();
        let dirty = std::mem::take(&mut inner.dirty);
        dirty
            .iter()
            .filter_map(|(cluster, node)| inner.get(cluster, node).cloned())
            .collect()
    }

    /// These have not been written after all.
    pub fn mark_dirty(&self, nodes: &[Arc<Node>]) {
        let keys = nodes.iter().map(|n| (n.cluster_id.clone(), n.node_id.clone()));
        self.write().dirty.extend(keys);
    }

    /// What was kept of a node before it came on record. Its order follows from the chain and stays.
    pub fn adopt_contact(&self, cluster: &ClusterId, node: &NodeId, kept: &Contact) {
        self.change(cluster, node, |n| {
            let contact = &mut n.contact;
            contact.address = contact.address.or(kept.address);
            // Both are of one registration.
            if contact.probe_port.is_none() && contact.probe_address.is_none() {
                contact.probe_port = kept.probe_port;
                contact.probe_address = kept.probe_address;
            }
            contact.refusal = contact.refusal.or(kept.refusal);
            false
        });
    }
}
