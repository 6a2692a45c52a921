//! Admits a heartbeat: who sent it, when, whether it is signed, whether its figures can be true, and
//! whether the report says the same (specification 000 "Validation Rules", protocol decisions 6–10, 22, 23).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::compare::{check_report, mismatch};
use super::envelope::{HeartbeatAuth, HeartbeatRequest, auth_message, payload_hash};
use super::parse::{Head, Opened};
use super::summary::section_of;
use super::{Heartbeat, check_window};
use crate::bytes::base64_exact;
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;
use crate::registry::JobIds;
use crate::report::{MAX_SECTION, REPORT_LEN, Report, Tag};
use crate::time::UnixSeconds;

/// What the gateway knows of a node on record.
#[derive(Debug, Clone, Copy)]
pub struct Registered<'a> {
    /// The registered key.
    pub key: &'a AgentKey,
    /// The tag of the present registration.
    pub tag: &'a Tag,
    /// The cluster's privacy setting.
    pub job_ids: JobIds,
}

/// Against what a heartbeat is judged.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'a> {
    /// The node of the request's path.
    pub path_node_id: &'a str,
    /// The node of the client certificate.
    pub certificate_node_id: &'a NodeId,
    /// The cluster of the client certificate.
    pub certificate_cluster_id: &'a ClusterId,
    /// The record of that node; none if it is not registered.
    pub registered: Option<Registered<'a>>,
    /// The gateway's clock.
    pub now: UnixSeconds,
}

/// A heartbeat that passed every check but those against the store: sequence, nonce, state, rate.
#[derive(Debug, Clone)]
pub struct VerifiedHeartbeat {
    /// The payload; shared with the request, where it was read with that.
    pub heartbeat: Arc<Heartbeat>,
    /// SHA-256 of its raw bytes.
    pub payload_hash: [u8; 32],
    /// The nonce, to be remembered while the timestamp is within its window.
    pub nonce: [u8; 16],
    /// The agent's signature over the payload, by way of [`auth_message`].
    pub signature: [u8; 64],
    /// What goes on chain.
    pub report: Report,
    /// The agent's signature over tag ‖ report.
    pub report_signature: [u8; 64],
    /// The second section that the report's digest covers, derived from the payload.
    pub section: Vec<u8>,
}

/// Checks a heartbeat, in this order:
///
/// 1. shape: payload an object, base64 and fixed lengths of `auth` (malformed);
/// 2. identity: path, certificate and body name the same node (`identity_mismatch`), certificate and body
///    the same cluster (`cluster_mismatch`); the node is registered (`unknown_node`); `auth.public_key`,
///    if sent, is the registered key (`key_mismatch`);
/// 3. time: `auth.timestamp`, if sent, is the second of `heartbeat.timestamp`; window of decision 22;
/// 4. signature over the payload (`signature_invalid`);
/// 5. sequence and figures (`invalid_sequence`, `invalid_capacity`, `invalid_health`, `invalid_field`);
/// 6. report: present (`report_missing`), readable, signed (`signature_invalid`), equal to the payload field
///    by field, its section the one that follows from the payload (`report_mismatch`).
///
/// # Errors
/// The first check that fails.
pub fn verify_heartbeat(
    request: &HeartbeatRequest<'_>,
    against: &Admission<'_>,
    verifier: &impl Verifier,
) -> Result<VerifiedHeartbeat, Refusal> {
    let opened = Opened::open(&request.heartbeat)?;
    let auth = DecodedAuth::read(&request.auth)?;
    let head = opened.head();
    let registered = identify(head, &request.auth, auth.public_key, against)?;
    check_time(head, &request.auth, against.now)?;

    let payload_hash = payload_hash(&request.heartbeat);
    let text = auth_message(
        head.node_id.as_str(),
        head.timestamp.seconds().0,
        &request.auth.nonce,
        &payload_hash,
    );
    if !verifier.verify(text.as_bytes(), &auth.signature, registered.key.as_bytes()) {
        return Err(Refusal::field(
            Code::SignatureInvalid,
            "auth.signature",
            "does not verify over node_id|timestamp|nonce|hex(sha256(heartbeat)) with the registered key",
        ));
    }

    let heartbeat = opened.finish()?;
    let (report, report_signature) = match (auth.report, auth.report_signature) {
        (Some(report), Some(signature)) => (report, signature),
        (None, _) => return Err(Refusal::field(Code::ReportMissing, "auth.report", "is absent")),
        (_, None) => {
            return Err(Refusal::field(
                Code::ReportMissing,
                "auth.report_signature",
                "is absent",
            ));
        }
    };
    let report = Report::decode(&report).map_err(unreadable)?;
    if !verifier.verify(
        &report.message(registered.tag),
        &report_signature,
        registered.key.as_bytes(),
    ) {
        return Err(Refusal::field(
            Code::SignatureInvalid,
            "auth.report_signature",
            "does not verify over tag and report with the registered key; the tag binds chain id, contract, cluster, node and epoch",
        ));
    }
    let section = section_of(&heartbeat, registered.job_ids).encode();
    check_report(&report, &heartbeat, &payload_hash, &section)?;
    if auth.section.is_some_and(|sent| sent != section) {
        return Err(mismatch(
            "auth.section",
            "is not the section that follows from the payload",
        ));
    }
    Ok(VerifiedHeartbeat {
        heartbeat,
        payload_hash,
        nonce: auth.nonce,
        signature: auth.signature,
        report,
        report_signature,
        section,
    })
}

struct DecodedAuth {
    signature: [u8; 64],
    nonce: [u8; 16],
    public_key: Option<[u8; 32]>,
    report: Option<[u8; REPORT_LEN]>,
    report_signature: Option<[u8; 64]>,
    section: Option<Vec<u8>>,
}

impl DecodedAuth {
    fn read(auth: &HeartbeatAuth) -> Result<Self, Refusal> {
        Ok(Self {
            signature: exact("auth.signature", &auth.signature)?,
            nonce: base64_exact(&auth.nonce).ok_or_else(|| {
                Refusal::field(Code::NonceInvalid, "auth.nonce", "must be base64 of 16 bytes").malformed()
            })?,
            public_key: auth
                .public_key
                .as_deref()
                .map(|k| exact("auth.public_key", k))
                .transpose()?,
            report: auth
                .report
                .as_deref()
                .map(|r| exact("auth.report", r))
                .transpose()?,
            report_signature: auth
                .report_signature
                .as_deref()
                .map(|s| exact("auth.report_signature", s))
                .transpose()?,
            section: auth.section.as_deref().map(section_bytes).transpose()?,
        })
    }
}

fn exact<const N: usize>(field: &str, text: &str) -> Result<[u8; N], Refusal> {
    base64_exact(text).ok_or_else(|| {
        Refusal::field(
            Code::Malformed,
            field,
            format_args!("must be base64 of {N} bytes"),
        )
        .malformed()
    })
}

/// A report that has its length, and yet says nothing.
fn unreadable(code: Code) -> Refusal {
    let what = if code == Code::InvalidHealth {
        "has a status that is none of 1 to 5 (bits 0 to 2 of byte 8)"
    } else {
        "has bits set that must be 0 (bits 4 to 7 of byte 8)"
    };
    Refusal::field(code, "auth.report", what).malformed()
}

fn section_bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    let refuse = || {
        Refusal::field(
            Code::Malformed,
            "auth.section",
            format_args!("must be base64 of at most {MAX_SECTION} bytes"),
        )
        .malformed()
    };
    STANDARD
        .decode(text)
        .ok()
        .filter(|bytes| bytes.len() <= MAX_SECTION)
        .ok_or_else(refuse)
}

fn identify<'a>(
    head: Head<'_>,
    auth: &HeartbeatAuth,
    public_key: Option<[u8; 32]>,
    against: &Admission<'a>,
) -> Result<Registered<'a>, Refusal> {
    let certified = against.certificate_node_id;
    let other = |field: &str, id: &str| {
        Refusal::field(
            Code::IdentityMismatch,
            field,
            format_args!("names node {id:?}, the certificate {certified}"),
        )
    };
    if against.path_node_id != certified.as_str() {
        return Err(other("path", against.path_node_id));
    }
    if head.node_id != certified {
        return Err(other("node_id", head.node_id.as_str()));
    }
    if let Some(id) = auth.node_id.as_deref().filter(|id| *id != certified.as_str()) {
        return Err(other("auth.node_id", id));
    }
    if head.cluster_id != against.certificate_cluster_id {
        return Err(Refusal::field(
            Code::ClusterMismatch,
            "cluster_id",
            format_args!(
                "is {}, the certificate's cluster {}",
                head.cluster_id, against.certificate_cluster_id
            ),
        ));
    }
    let registered = against.registered.ok_or_else(|| {
        Refusal::field(
            Code::UnknownNode,
            "node_id",
            format_args!("{certified} is not on record"),
        )
    })?;
    if public_key.is_some_and(|key| key != *registered.key.as_bytes()) {
        return Err(Refusal::field(
            Code::KeyMismatch,
            "auth.public_key",
            "is not the registered key",
        ));
    }
    Ok(registered)
}

fn check_time(head: Head<'_>, auth: &HeartbeatAuth, now: UnixSeconds) -> Result<(), Refusal> {
    let seconds = head.timestamp.seconds();
    if auth.timestamp.is_some_and(|t| u64::try_from(t) != Ok(seconds.0)) {
        return Err(Refusal::field(
            Code::InvalidField,
            "auth.timestamp",
            format_args!("must be {}, the whole seconds of heartbeat.timestamp", seconds.0),
        ));
    }
    check_window(seconds, now).map_err(|code| {
        Refusal::field(
            code,
            "timestamp",
            format_args!("is {seconds}, the gateway's clock {now}"),
        )
    })
}

#[cfg(test)]
#[path = "verify_tests/mod.rs"]
mod tests;
