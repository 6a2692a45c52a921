//! Renewal of a node's certificate, and its recovery once it has expired (decision 4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::time::Rfc3339;

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
