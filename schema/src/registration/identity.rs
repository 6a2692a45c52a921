use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{ClusterId, NodeId};
use crate::key::AgentKey;
use crate::time::Rfc3339;

/// A text field that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct FieldError {
    /// Path of the field, as in JSON.
    pub field: &'static str,
    /// What it must be.
    pub rule: &'static str,
}

/// `node_identity` of specification 000. Absent optional fields are left out of the signed JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeIdentity {
    /// Unique within its cluster.
    pub node_id: NodeId,
    /// The parent cluster.
    pub cluster_id: ClusterId,
    /// Bech32 address of the cluster's owner.
    pub provider_address: String,
    /// Base64 Ed25519 public key of the agent.
    pub agent_pubkey: AgentKey,
    /// FQDN or short host name, at most 253 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Lower-case hex SHA-256 of the hardware's identifiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_fingerprint: Option<String>,
    /// Base64 of 32 random bytes, used once.
    pub registration_nonce: String,
    /// RFC 3339; valid for 24 hours around block time.
    pub registration_timestamp: Rfc3339,
}

impl NodeIdentity {
    /// Checks every text field; afterwards canonical JSON, amino and Go escaping coincide.
    ///
    /// # Errors
    /// Names the first field that is out of its rule.
    pub fn check(&self) -> Result<(), FieldError> {
        // Destructured, so that a new field cannot be forgotten here.
        let Self {
            node_id: _,
            cluster_id: _,
            provider_address,
            agent_pubkey: _,
            hostname,
            hardware_fingerprint,
            registration_nonce: _,
            registration_timestamp,
        } = self;
        plain("node_identity.provider_address", provider_address, 1, 128)?;
        if let Some(h) = hostname {
            plain("node_identity.hostname", h, 1, 253)?;
        }
        if let Some(f) = hardware_fingerprint
            && !(f.len() == 64
                && f.bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
        {
            return Err(FieldError {
                field: "node_identity.hardware_fingerprint",
                rule: "must be the lower-case hex of a SHA-256 (64 characters)",
            });
        }
        self.nonce()?;
        plain(
            "node_identity.registration_timestamp",
            registration_timestamp.as_str(),
            20,
            40,
        )
    }

    /// The 32 bytes of `registration_nonce`.
    ///
    /// # Errors
    /// If it is not base64 of exactly 32 bytes.
    pub fn nonce(&self) -> Result<[u8; 32], FieldError> {
        STANDARD
            .decode(&self.registration_nonce)
            .ok()
            .and_then(|b| b.try_into().ok())
            .ok_or(FieldError {
                field: "node_identity.registration_nonce",
                rule: "must be base64 of 32 bytes",
            })
    }
}

/// Printable ASCII without `" \ < > &`, of bounded length.
pub(crate) fn plain(field: &'static str, s: &str, min: usize, max: usize) -> Result<(), FieldError> {
    if s.len() < min || s.len() > max {
        return Err(FieldError {
            field,
            rule: "is too short or too long",
        });
    }
    if s.bytes()
        .all(|b| (0x20..0x7f).contains(&b) && !matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&'))
    {
        Ok(())
    } else {
        Err(FieldError {
            field,
            rule: "must be printable ASCII without \" \\ < > &",
        })
    }
}
