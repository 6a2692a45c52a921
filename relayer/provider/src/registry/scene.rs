//! What tests begin with.

use hpc_schema::id::ClusterId;
use hpc_schema::node::NodeState;
use hpc_schema::registry::RelayView;
use hpc_schema::time::UnixSeconds;

use super::Registry;
use crate::db::{self, Conn};
use crate::identity::Seed;

/// `node-a` in its first epoch, ACTIVE, heard of at 1,000.
pub(crate) fn view() -> RelayView {
    RelayView {
        node_id: "node-a".parse().unwrap(),
        page: 0,
        slot: 0,
        epoch: 1,
        sequence: 1,
        agent_pubkey: *Seed::from_bytes(&[1; 32]).unwrap().public(),
        section_digest: "00".repeat(16),
        recorded_state: NodeState::Active,
        state: NodeState::Active,
        last_heartbeat: UnixSeconds(1_000),
        offline_since: None,
        drain: None,
    }
}

/// These clusters are served, and of these it has been read which nodes they have.
pub(crate) fn read(registry: &Registry, served: &[&ClusterId], whole: &[&ClusterId]) {
    registry.looked_for(served.iter().copied().cloned().collect());
    for cluster in whole {
        registry.read_whole(cluster);
    }
}

/// This node is on record, as read from the chain.
pub(crate) async fn on_record(conn: &mut Conn, cluster: &str, node: &str) {
    db::query(
        "INSERT INTO node (cluster_id, node_id, epoch, public_key, page, slot, settled_sequence, section_digest,
         recorded_state, state, last_heartbeat_s, height) VALUES (?, ?, 1, ?, 0, 0, 0, ?, 1, 1, 0, 1)",
    )
    .bind(cluster)
    .bind(node)
    .bind(Seed::from_bytes(&[3; 32]).unwrap().public().as_bytes().as_slice())
    .bind([0u8; 16].as_slice())
    .execute(conn)
    .await
    .unwrap();
}
