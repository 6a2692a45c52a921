use std::net::IpAddr;

use hpc_schema::id::{ClusterId, NodeId};

use super::Gateway;
use super::budget::Place;
use crate::admission::network;
use crate::clock;
use crate::identity::PeerIdentity;

/// A place among those that have shown no certificate that counts.
pub(super) fn stranger(gateway: &Gateway, from: IpAddr) -> Place<IpAddr> {
    let (place, victim) = gateway.strangers.take(network(from));
    if let Some(victim) = victim {
        gateway.metrics.connections_evicted.inc();
        gateway.log_once(
            victim,
            "more connections without a certificate that counts than it may have",
        );
    }
    place
}

/// A place of this node's.
pub(super) fn member(gateway: &Gateway, peer: &PeerIdentity) -> Place<(ClusterId, NodeId)> {
    let key = (peer.cluster_id.clone(), peer.node_id.clone());
    let (place, victim) = gateway.members.take(key.clone());
    let Some(victim) = victim else { return place };
    gateway.metrics.connections_evicted.inc();
    let (cluster, node) = &victim;
    if victim == key {
        tracing::debug!(%cluster, %node, "the node's oldest connection is closed for a newer one");
    } else if let Some(others) = gateway.crowded.note(clock::steady()) {
        tracing::warn!(%cluster, %node, newcomer = %key.1, most = gateway.config.gateway.max_connections, others,
            "a node's connection is closed for another node's, as there are no more places; raise gateway.max_connections; \
             others since the last such line");
    }
    place
}
