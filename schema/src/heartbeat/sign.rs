//! Builds a signed request: the agent's side of [`super::verify_heartbeat`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Heartbeat;
use super::envelope::{HeartbeatAuth, HeartbeatRequest, auth_message, payload_hash};
use super::raw::Payload;
use super::summary::{body_of, section_of};
use crate::code::Code;
use crate::refusal::Refusal;
use crate::registry::JobIds;
use crate::report::{Report, SectionDigest, Tag, section_digest};

/// What a heartbeat is signed with.
#[derive(Debug, Clone, Copy)]
pub struct SignHeartbeat<'a> {
    /// The payload.
    pub heartbeat: &'a Heartbeat,
    /// 16 fresh random bytes.
    pub nonce: [u8; 16],
    /// The tag of the node's present registration.
    pub tag: &'a Tag,
    /// What of job ids may become public.
    pub job_ids: JobIds,
    /// Digest of the section that the chain is known to hold; the section is attached unless it is that one.
    pub settled_section: Option<SectionDigest>,
}

/// A request ready to be sent, and what it put on record.
#[derive(Debug, Clone)]
pub struct SignedHeartbeat {
    /// The body to send.
    pub request: HeartbeatRequest<'static>,
    /// The report in it.
    pub report: Report,
}

/// Why a heartbeat could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError<E> {
    /// The payload breaks a rule that the gateway would refuse it for.
    #[error("the heartbeat breaks a rule of its own: {0}")]
    Invalid(Refusal),
    /// The payload could not be written as JSON.
    #[error("the heartbeat cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The signer failed.
    #[error("the agent's key cannot sign: {0}")]
    Signer(E),
}

/// A heartbeat that wants its two signatures: for keys that do not sign at once, or not in this process.
#[derive(Debug, Clone)]
pub struct UnsignedHeartbeat {
    payload: Payload<'static>,
    report: Report,
    section: Option<Vec<u8>>,
    nonce: String,
    seconds: u64,
    node_id: String,
    messages: [Vec<u8>; 2],
}

impl UnsignedHeartbeat {
    /// Checks the payload and derives what is to be signed.
    ///
    /// # Errors
    /// [`SignError::Invalid`], [`SignError::Json`].
    pub fn new<E>(what: &SignHeartbeat<'_>) -> Result<Self, SignError<E>> {
        let hb = what.heartbeat;
        hb.check().map_err(SignError::Invalid)?;
        let payload = Payload::from(serde_json::value::to_raw_value(hb)?);
        let payload_hash = payload_hash(&payload);
        let seconds = hb.timestamp.seconds().0;
        let time = u32::try_from(seconds).map_err(|_| {
            SignError::Invalid(Refusal::field(
                Code::TimestampInFuture,
                "timestamp",
                "ends with the year 2105",
            ))
        })?;
        let section = section_of(hb, what.job_ids).encode();
        let report = Report {
            time,
            sequence: hb.sequence_number.get(),
            body: body_of(hb),
            section_digest: section_digest(&section),
            payload_hash,
        };
        let nonce = STANDARD.encode(what.nonce);
        let text = auth_message(hb.node_id.as_str(), seconds, &nonce, &payload_hash);
        let messages = [text.into_bytes(), report.message(what.tag).to_vec()];
        let attach = what.settled_section != Some(report.section_digest);
        Ok(Self {
            payload,
            report,
            section: attach.then_some(section),
            nonce,
            seconds,
            node_id: hb.node_id.to_string(),
            messages,
        })
    }

    /// What the agent's key signs: the payload's message, the report's message.
    #[must_use]
    pub fn messages(&self) -> &[Vec<u8>; 2] {
        &self.messages
    }

    /// The request with the signatures of [`Self::messages`], in their order.
    #[must_use]
    pub fn signed(self, [signature, report_signature]: [[u8; 64]; 2]) -> SignedHeartbeat {
        let auth = HeartbeatAuth {
            signature: STANDARD.encode(signature),
            nonce: self.nonce,
            timestamp: i64::try_from(self.seconds).ok(),
            node_id: Some(self.node_id),
            public_key: None,
            report: Some(STANDARD.encode(self.report.encode())),
            report_signature: Some(STANDARD.encode(report_signature)),
            section: self.section.map(|section| STANDARD.encode(section)),
        };
        SignedHeartbeat {
            request: HeartbeatRequest {
                heartbeat: self.payload,
                auth,
                acknowledgements: Vec::new(),
            },
            report: self.report,
        }
    }
}

/// Signs a heartbeat and its report; `sign` answers the Ed25519 signature of the bytes it is given.
///
/// # Errors
/// See [`SignError`].
pub fn sign_heartbeat<E>(
    what: &SignHeartbeat<'_>,
    mut sign: impl FnMut(&[u8]) -> Result<[u8; 64], E>,
) -> Result<SignedHeartbeat, SignError<E>> {
    let unsigned = UnsignedHeartbeat::new(what)?;
    let [payload, report] = unsigned.messages();
    let signatures = [
        sign(payload).map_err(SignError::Signer)?,
        sign(report).map_err(SignError::Signer)?,
    ];
    Ok(unsigned.signed(signatures))
}
