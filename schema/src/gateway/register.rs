//! Registration: token and certificate request in, certificate and the chain's record out (decision 4).

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::text;
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;
use crate::registry::{JobIds, Params};
use crate::task::KeyRotation;

/// Bodies of registrations above this are refused unread.
pub const MAX_REGISTER_BYTES: usize = 32_768;

/// Body of `POST /api/v1/hpc/nodes/register`. The same request may be repeated until the token expires.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterRequest {
    /// The registration token (compact JWS).
    pub token: String,
    /// The agent's key.
    pub public_key: AgentKey,
    /// PKCS#10 request as PEM; of it only the key counts, subject and SAN come from the token.
    pub csr: String,
    /// Base64 Ed25519 signature by the agent's key over [`register_message`].
    pub csr_signature: String,
    /// FQDN or short host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Lower-case hex SHA-256 of the hardware's identifiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_fingerprint: Option<String>,
    /// The agent's version (semver).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// UDP port that answers latency probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<u16>,
    /// IP address at which peers reach that port; default: the one that the node's requests come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_address: Option<IpAddr>,
    /// The node, with a join token, which names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Base64 of 32 fresh random bytes that the provider puts into the identity it signs; needed with
    /// `rotation_signature`, which covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_nonce: Option<String>,
    /// Base64 Ed25519 signature by the **old** agent key over
    /// [`key_rotation_message`](crate::registration::key_rotation_message): replaces the key of a live node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation_signature: Option<String>,
    /// A TPM's word for the machine; for the gateway alone, nothing of it goes to the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Attestation>,
}

/// A TPM 2.0's quote over [`attestation_data`], by a restricted signing key of its endorsement hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attestation {
    /// Base64 of the attestation key's `TPMT_PUBLIC`: ECDSA over NIST P-256 with SHA-256.
    pub public: String,
    /// Base64 of `TPMS_ATTEST`.
    pub quote: String,
    /// Base64 of the ECDSA signature over it (DER).
    pub signature: String,
    /// The registers of the SHA-256 bank that were quoted, in rising order.
    pub pcrs: Vec<Pcr>,
}

/// A platform configuration register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pcr {
    /// Its number, 0 to 23.
    pub index: u8,
    /// Its value in lower-case hex.
    pub sha256: String,
}

/// Whether one host can be reached at this address: probes go nowhere else.
#[must_use]
pub fn is_probe_address(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let nowhere = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        // On which link cannot be said.
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !address.is_unspecified() && !address.is_multicast() && !nowhere
}

/// What a quote is made over (its qualifying data), so that it is of this registration and this key:
/// `SHA-256("hpc-attest-v1" ‖ agent key ‖ register_message)`.
#[must_use]
pub fn attestation_data(key: &AgentKey, message: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"hpc-attest-v1");
    hash.update(key.as_bytes());
    hash.update(message);
    hash.finalize().into()
}

impl std::fmt::Debug for RegisterRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a bearer secret until it is used.
        f.debug_struct("RegisterRequest")
            .field("token", &"<redacted>")
            .field("public_key", &self.public_key)
            .field("hostname", &self.hostname)
            .field("agent_version", &self.agent_version)
            .finish_non_exhaustive()
    }
}

/// What the agent signs at registration: `"hpc-register-v1" ‖ lp(jti) ‖ SHA-256(CSR DER)`; lp is a
/// big-endian u16 length and the bytes.
#[must_use]
pub fn register_message(jti: &str, csr_der: &[u8]) -> Vec<u8> {
    let mut out = b"hpc-register-v1".to_vec();
    crate::bytes::push_lp(&mut out, jti);
    out.extend_from_slice(&Sha256::digest(csr_der));
    out
}

/// 200: registered on chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterResponse {
    /// The client certificate and its chain, PEM.
    pub certificate: String,
    /// The gateway's CA, PEM.
    pub ca: String,
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
    /// Highest sequence number that the gateway or the chain has seen; 0 if none.
    pub last_sequence: u32,
    /// The contract's parameters.
    pub params: Params,
    /// What of job ids the section may hold.
    #[serde(default)]
    pub job_ids: JobIds,
    /// Key that signs commands and tasks, once the cluster has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_public_key: Option<AgentKey>,
    /// How it came to be, oldest first: a token may be older than its rotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_keys: Vec<KeyRotation>,
}

/// The only status of a pending registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegisterStatus {
    /// Signed and on its way to the chain.
    RegistrationPending,
}

/// What a pending registration waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    /// To stand in a block.
    Chain,
    /// That the operator approves the node (join tokens).
    Approval,
    /// Something that a later version knows.
    #[serde(other)]
    Other,
}

/// 202 with Retry-After: repeat the same request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterPending {
    /// Always `registration_pending`.
    pub status: RegisterStatus,
    /// The code's word, `registration_pending` or what the chain last refused with for now.
    pub code: String,
    /// Whose turn it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
}

impl RegisterPending {
    /// On its way, with `code` as the reason.
    #[must_use]
    pub fn new(code: Code, waiting_for: WaitingFor) -> Self {
        Self {
            status: RegisterStatus::RegistrationPending,
            code: code.as_str().to_owned(),
            waiting_for: Some(waiting_for),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_probes_is_one_hosts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for good in [
            "10.0.0.7",
            "127.0.0.1",
            "::1",
            "fd00::7",
            "fec0::7",
            "::ffff:10.0.0.7",
        ] {
            assert!(is_probe_address(ip(good)), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "ff02::1",
            "fe80::7",
            "febf::7",
            "::ffff:0.0.0.0",
            "::ffff:224.0.0.1",
            "::ffff:255.255.255.255",
        ] {
            assert!(!is_probe_address(ip(bad)), "{bad}");
        }
    }
}
