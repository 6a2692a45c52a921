//! The request around the payload: who signed it, and the report that goes on chain.

use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::fields::Fields;
use super::raw::Payload;
use super::reading::{self, Object};
use super::usual;
use crate::code::Code;
use crate::command::{Acknowledgement, MAX_ACKNOWLEDGEMENTS};
use crate::refusal::Refusal;

/// Bodies of heartbeats above this are refused unread: HTTP 413, `body_too_large`.
pub const MAX_HEARTBEAT_BYTES: usize = 65_536;

/// Body of `POST /api/v1/hpc/nodes/{node_id}/heartbeat`.
///
/// The payload stays the bytes that were sent: they are what is signed and hashed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatRequest<'a> {
    /// The payload; its raw bytes are signed.
    #[schemars(with = "super::Heartbeat")]
    pub heartbeat: Payload<'a>,
    /// Signatures and report.
    #[serde(deserialize_with = "reading::object")]
    pub auth: HeartbeatAuth,
    /// What became of commands; at most [`MAX_ACKNOWLEDGEMENTS`], the rest with the next heartbeat.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Option<Vec<Acknowledgement>>")]
    pub acknowledgements: Vec<Acknowledgement>,
}

/// `auth` of a heartbeat. Base64 is the standard alphabet with padding; `null` and the empty text count as absent.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatAuth {
    /// Base64 Ed25519 signature over [`auth_message`].
    #[serde(deserialize_with = "some_text")]
    pub signature: String,
    /// Base64 of 16 random bytes.
    #[serde(deserialize_with = "some_text")]
    pub nonce: String,
    /// Whole seconds of `heartbeat.timestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Same as `heartbeat.node_id`.
    #[serde(
        default,
        deserialize_with = "reading::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_id: Option<String>,
    /// The registered key, base64.
    #[serde(
        default,
        deserialize_with = "reading::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub public_key: Option<String>,
    /// Base64 of the 70-byte report.
    #[serde(
        default,
        deserialize_with = "reading::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub report: Option<String>,
    /// Base64 Ed25519 signature over tag ‖ report.
    #[serde(
        default,
        deserialize_with = "reading::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub report_signature: Option<String>,
    /// Base64 of the second section, while the chain does not hold it yet.
    #[serde(
        default,
        deserialize_with = "reading::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub section: Option<String>,
}

impl<'a> HeartbeatRequest<'a> {
    /// Reads a request body, of which the payload stays a part where it is as agents write it.
    ///
    /// # Errors
    /// [`Code::BodyTooLarge`] above [`MAX_HEARTBEAT_BYTES`]; [`Code::Malformed`] if it is not JSON of this shape
    /// or carries too many acknowledgements, [`Code::NonceInvalid`] if it has no nonce; the field at fault where it is one.
    pub fn parse(body: &'a [u8]) -> Result<Self, Refusal> {
        if body.len() > MAX_HEARTBEAT_BYTES {
            return Err(Refusal::whole(
                Code::BodyTooLarge,
                format_args!(
                    "the body has {} bytes, at most {MAX_HEARTBEAT_BYTES} may be sent",
                    body.len()
                ),
            ));
        }
        let request = match usual::read(body) {
            Some((heartbeat, auth, acknowledgements)) => Self {
                heartbeat,
                auth,
                acknowledgements,
            },
            None => Self::any(body)?,
        };
        if request.acknowledgements.len() > MAX_ACKNOWLEDGEMENTS {
            let what = format!("has more than {MAX_ACKNOWLEDGEMENTS} entries");
            return Err(Refusal::field(Code::Malformed, "acknowledgements", what).malformed());
        }
        Ok(request)
    }

    /// Reads a body whatever it looks like, its payload left unread; says what is wrong with it.
    pub(super) fn any(body: &[u8]) -> Result<Self, Refusal> {
        reading::object(&mut serde_json::Deserializer::from_slice(body))
            .or_else(|error| Self::in_parts(body, &error).map_err(Refusal::malformed))
    }

    /// Reads member by member what does not read in one pass for `error`, to name the member at fault.
    fn in_parts(body: &[u8], error: &serde_json::Error) -> Result<Self, Refusal> {
        let unread = || Refusal::whole(Code::Malformed, error);
        let raw: &RawValue = serde_json::from_slice(body).map_err(|_| unread())?;
        let f = Fields::open("", Code::Malformed, raw.get()).map_err(|_| unread())?;
        let heartbeat = f.raw("heartbeat").ok_or_else(|| f.refuse("heartbeat", ABSENT))?;
        let auth = f
            .object("auth", Code::Malformed)?
            .ok_or_else(|| f.refuse("auth", ABSENT))?;
        let acknowledgements = f
            .raw("acknowledgements")
            .map(|raw| serde_json::from_str(raw.get()).map_err(|e| f.refuse("acknowledgements", e)))
            .transpose()?;
        Ok(Self {
            heartbeat: heartbeat.to_owned().into(),
            auth: HeartbeatAuth::in_parts(&auth)?,
            acknowledgements: acknowledgements.unwrap_or_default(),
        })
    }
}

impl Object for HeartbeatRequest<'_> {
    fn read<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        Self::deserialize(de)
    }
}

impl Object for HeartbeatAuth {
    fn read<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        Self::deserialize(de)
    }
}

impl HeartbeatAuth {
    fn in_parts(f: &Fields<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            signature: f
                .text("signature")?
                .ok_or_else(|| f.refuse("signature", ABSENT))?,
            nonce: f
                .text("nonce")?
                .ok_or_else(|| Refusal::field(Code::NonceInvalid, f.path("nonce"), ABSENT))?,
            timestamp: f.optional("timestamp", "an integer")?,
            node_id: f.text("node_id")?,
            public_key: f.text("public_key")?,
            report: f.text("report")?,
            report_signature: f.text("report_signature")?,
            section: f.text("section")?,
        })
    }
}

const ABSENT: &str = "is absent";

fn some_text<'de, D: Deserializer<'de>>(de: D) -> Result<String, D::Error> {
    reading::text(de)?.ok_or_else(|| D::Error::custom(ABSENT))
}

fn list<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<Acknowledgement>, D::Error> {
    Option::deserialize(de).map(Option::unwrap_or_default)
}

/// SHA-256 of the raw bytes of the `heartbeat` value.
#[must_use]
pub fn payload_hash(payload: &Payload<'_>) -> [u8; 32] {
    Sha256::digest(payload.get().as_bytes()).into()
}

/// The text that the agent signs: `node_id|timestamp|nonce|hex(sha256(payload))`, timestamp in whole
/// seconds, nonce as it stands in `auth.nonce` (protocol decision 7).
#[must_use]
pub fn auth_message(node_id: &str, timestamp: u64, nonce: &str, payload_hash: &[u8; 32]) -> String {
    [node_id, &timestamp.to_string(), nonce, &hex::encode(payload_hash)].join("|")
}
