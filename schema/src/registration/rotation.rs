use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;

fn push(out: &mut Vec<u8>, text: &str) {
    // Every text here is bounded far below 64 KiB; saturating keeps the function total.
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// What the old agent key signs to hand over to the new one (decision 3):
/// `"hpc-key-rotation-v1" ‖ lp(chain_id) ‖ lp(contract) ‖ lp(cluster_id) ‖ lp(node_id) ‖ new key 32 ‖ registration nonce 32`.
#[must_use]
pub fn key_rotation_message(
    chain_id: &str,
    contract: &str,
    cluster_id: &ClusterId,
    node_id: &NodeId,
    new_key: &AgentKey,
    nonce: &[u8; 32],
) -> Vec<u8> {
    let mut out = b"hpc-key-rotation-v1".to_vec();
    for text in [chain_id, contract, cluster_id.as_str(), node_id.as_str()] {
        push(&mut out, text);
    }
    out.extend_from_slice(new_key.as_bytes());
    out.extend_from_slice(nonce);
    out
}

/// What the old task key signs to hand over to the new one (decision 11):
/// `"hpc-task-key-rotation-v1" ‖ lp(chain_id) ‖ lp(contract) ‖ lp(cluster_id) ‖ new key 32`.
#[must_use]
pub fn task_key_rotation_message(
    chain_id: &str,
    contract: &str,
    cluster_id: &ClusterId,
    new_key: &AgentKey,
) -> Vec<u8> {
    let mut out = b"hpc-task-key-rotation-v1".to_vec();
    for text in [chain_id, contract, cluster_id.as_str()] {
        push(&mut out, text);
    }
    out.extend_from_slice(new_key.as_bytes());
    out
}
