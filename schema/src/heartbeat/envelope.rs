//! The request around the payload: who signed it, and the report that goes on chain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::code::Code;
use crate::command::{Acknowledgement, MAX_ACKNOWLEDGEMENTS};
use crate::refusal::Refusal;

/// Bodies of heartbeats above this are refused unread: HTTP 413, `body_too_large`.
pub const MAX_HEARTBEAT_BYTES: usize = 65_536;

/// Body of `POST /api/v1/hpc/nodes/{node_id}/heartbeat`.
///
/// The payload stays the bytes that were sent: they are what is signed and hashed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatRequest {
    /// The payload; its raw bytes are signed.
    #[schemars(with = "super::Heartbeat")]
    pub heartbeat: Box<RawValue>,
    /// Signatures and report.
    pub auth: HeartbeatAuth,
    /// What became of commands; at most [`MAX_ACKNOWLEDGEMENTS`], the rest with the next heartbeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledgements: Vec<Acknowledgement>,
}

/// `auth` of a heartbeat. Base64 is the standard alphabet with padding.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatAuth {
    /// Base64 Ed25519 signature over [`auth_message`].
    pub signature: String,
    /// Base64 of 16 random bytes.
    pub nonce: String,
    /// Whole seconds of `heartbeat.timestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Same as `heartbeat.node_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// The registered key, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Base64 of the 70-byte report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// Base64 Ed25519 signature over tag ‖ report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_signature: Option<String>,
    /// Base64 of the second section, while the chain does not hold it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
}

impl HeartbeatRequest {
    /// Reads a request body.
    ///
    /// # Errors
    /// [`Code::BodyTooLarge`] above [`MAX_HEARTBEAT_BYTES`]; [`Code::Malformed`] if it is not JSON of this shape
    /// or carries too many acknowledgements.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        if body.len() > MAX_HEARTBEAT_BYTES {
            return Err(Refusal::whole(
                Code::BodyTooLarge,
                format_args!(
                    "the body has {} bytes, at most {MAX_HEARTBEAT_BYTES} may be sent",
                    body.len()
                ),
            ));
        }
        let request: Self =
            serde_json::from_slice(body).map_err(|e| Refusal::whole(Code::Malformed, e).malformed())?;
        if request.acknowledgements.len() > MAX_ACKNOWLEDGEMENTS {
            let what = format!("has more than {MAX_ACKNOWLEDGEMENTS} entries");
            return Err(Refusal::field(Code::Malformed, "acknowledgements", what).malformed());
        }
        Ok(request)
    }
}

/// SHA-256 of the raw bytes of the `heartbeat` value.
#[must_use]
pub fn payload_hash(payload: &RawValue) -> [u8; 32] {
    Sha256::digest(payload.get().as_bytes()).into()
}

/// The text that the agent signs: `node_id|timestamp|nonce|hex(sha256(payload))`, timestamp in whole
/// seconds, nonce as it stands in `auth.nonce` (protocol decision 7).
#[must_use]
pub fn auth_message(node_id: &str, timestamp: u64, nonce: &str, payload_hash: &[u8; 32]) -> String {
    [node_id, &timestamp.to_string(), nonce, &hex::encode(payload_hash)].join("|")
}
