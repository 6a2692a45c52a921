use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::{base64_exact, push_lp};
use crate::code::Code;
use crate::id::ClusterId;
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;

/// The old task key's word for the new one. An agent that pinned the old key pins the new one from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRotation {
    /// Base64 of the key that signs.
    pub old_key: AgentKey,
    /// Base64 of the key that counts from here on.
    pub new_key: AgentKey,
    /// Base64 Ed25519 signature by the old key over [`rotation_message`].
    pub signature: String,
}

/// What the old key signs: `"hpc-task-key-v1" ‖ lp(chain_id) ‖ lp(contract) ‖ lp(cluster_id) ‖ old key 32 ‖ new key 32`.
#[must_use]
pub fn rotation_message(
    chain_id: &str,
    contract: &str,
    cluster_id: &ClusterId,
    old: &AgentKey,
    new: &AgentKey,
) -> Vec<u8> {
    let mut out = b"hpc-task-key-v1".to_vec();
    for text in [chain_id, contract, cluster_id.as_str()] {
        push_lp(&mut out, text);
    }
    out.extend_from_slice(old.as_bytes());
    out.extend_from_slice(new.as_bytes());
    out
}

/// Follows a chain of rotations, oldest first, from the pinned key on; gives the key that counts in the end. Rotations
/// before the pinned key are passed over.
///
/// # Errors
/// [`Code::TaskSignatureInvalid`] if a step from the pinned key on is not signed by its old key.
pub fn verify_rotation(
    pinned: &AgentKey,
    steps: &[KeyRotation],
    (chain_id, contract, cluster_id): (&str, &str, &ClusterId),
    verifier: &impl Verifier,
) -> Result<AgentKey, Refusal> {
    let mut current = *pinned;
    for step in steps {
        if step.old_key != current {
            continue;
        }
        let message = rotation_message(chain_id, contract, cluster_id, &step.old_key, &step.new_key);
        let good = base64_exact::<64>(&step.signature)
            .is_some_and(|s| verifier.verify(&message, &s, current.as_bytes()));
        if !good {
            return Err(Refusal::field(
                Code::TaskSignatureInvalid,
                "task_keys.signature",
                "is not by the old task key",
            ));
        }
        current = step.new_key;
    }
    Ok(current)
}
