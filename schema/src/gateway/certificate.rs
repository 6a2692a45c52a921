//! Renewal of a node's certificate, and its recovery once it has expired (decision 4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::text;
use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;
use crate::registry::{JobIds, Params};
use crate::time::Rfc3339;

/// Numbers that an agent reserves at once, and that nobody may know of: a node that has lost its count goes on so far above
/// what it is told, and each recovery of its registration is told so much more than the one before.
pub const SEQUENCE_BLOCK: u32 = 64;

/// Body of `POST …/{node_id}/certificate` over mutual TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateRequest {
    /// PKCS#10 request as PEM.
    pub csr: String,
}

/// Answer of renewal and recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateResponse {
    /// The client certificate and its chain, PEM.
    pub certificate: String,
    /// The gateway's CA, PEM.
    pub ca: String,
    /// What is on record of the node, with recovery only: an agent that has lost its disk goes on by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<RegistrationRecord>,
}

/// A node's present registration, as gateway and chain know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegistrationRecord {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// Bech32 address of the cluster's owner.
    pub provider_address: String,
    /// The chain.
    pub chain_id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// Registration epoch; a u64 as a string.
    #[serde(with = "text")]
    #[schemars(with = "String")]
    pub epoch: u64,
    /// Highest sequence number that the gateway or the chain has seen, or that a recovery before may have led to; 0 if none.
    /// Who has lost its count goes on a block of 64 above it.
    pub last_sequence: u32,
    /// The contract's parameters.
    pub params: Params,
    /// What of job ids the section may hold.
    #[serde(default)]
    pub job_ids: JobIds,
    /// Key that signs commands and tasks, once the cluster has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_public_key: Option<AgentKey>,
    /// The hardware that was registered, if this gateway knows: lower-case hex SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_fingerprint: Option<String>,
}

/// Answer of `POST …/{node_id}/certificate/challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChallengeResponse {
    /// Base64 of 32 random bytes, used once.
    pub challenge: String,
    /// Until when it counts.
    pub expires_at: Rfc3339,
}

/// Body of `POST …/{node_id}/certificate/recover`, for a certificate that has expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecoverRequest {
    /// The challenge as it was given.
    pub challenge: String,
    /// PKCS#10 request as PEM.
    pub csr: String,
    /// Base64 Ed25519 signature by the agent's key over [`recover_message`].
    pub signature: String,
}

/// What the agent signs for recovery: `"hpc-recover-v1" ‖ challenge 32 ‖ SHA-256(CSR DER)`.
#[must_use]
pub fn recover_message(challenge: &[u8; 32], csr_der: &[u8]) -> Vec<u8> {
    let mut out = b"hpc-recover-v1".to_vec();
    out.extend_from_slice(challenge);
    out.extend_from_slice(&Sha256::digest(csr_der));
    out
}
