//! What of a heartbeat does not go on chain, as it is stored: the very text that the agent signed, its signatures, the
//! registered key, what of job ids the cluster makes public.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::heartbeat::{HeartbeatAuth, Payload, VerifiedHeartbeat};
use hpc_schema::key::AgentKey;
use hpc_schema::registry::JobIds;
use hpc_schema::report::{REPORT_LEN, Report};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The first byte of this layout. Rows of before begin with the brace of a JSON object.
const LAYOUT: u8 = 1;
/// Bytes beside the payload.
const BESIDE: usize = 2 + 32 + 16 + 64 + REPORT_LEN + 64;

/// A heartbeat as it is stored.
#[must_use]
pub fn full(
    payload: &Payload<'_>,
    verified: &VerifiedHeartbeat,
    public_key: &AgentKey,
    job_ids: JobIds,
) -> Vec<u8> {
    let payload = payload.get().as_bytes();
    let mut bytes = Vec::with_capacity(BESIDE + payload.len());
    bytes.push(LAYOUT);
    bytes.push(match job_ids {
        JobIds::Plain => 0,
        JobIds::Hashed => 1,
        JobIds::None => 2,
    });
    bytes.extend_from_slice(public_key.as_bytes());
    bytes.extend_from_slice(&verified.nonce);
    bytes.extend_from_slice(&verified.signature);
    bytes.extend_from_slice(&verified.report.encode());
    bytes.extend_from_slice(&verified.report_signature);
    bytes.extend_from_slice(payload);
    bytes
}

/// What [`full`] wrote.
#[derive(Debug, Deserialize)]
pub(super) struct Full {
    /// The payload's text.
    #[serde(deserialize_with = "raw")]
    pub(super) heartbeat: String,
    /// Without what follows from the rest.
    pub(super) auth: HeartbeatAuth,
    pub(super) public_key: AgentKey,
    pub(super) job_ids: JobIds,
}

fn raw<'de, D: serde::Deserializer<'de>>(de: D) -> Result<String, D::Error> {
    Ok(Box::<RawValue>::deserialize(de)?.get().to_owned())
}

/// None if it is not readable.
pub(super) fn read(bytes: &[u8]) -> Option<Full> {
    let Some(rest) = bytes.strip_prefix(&[LAYOUT]) else {
        return serde_json::from_slice(bytes).ok();
    };
    let (&[job_ids], rest) = rest.split_first_chunk()?;
    let (public_key, rest) = rest.split_first_chunk()?;
    let (nonce, rest) = rest.split_first_chunk::<16>()?;
    let (signature, rest) = rest.split_first_chunk::<64>()?;
    let (report, rest) = rest.split_first_chunk::<REPORT_LEN>()?;
    let (report_signature, payload) = rest.split_first_chunk::<64>()?;
    let time = Report::decode(report).ok()?.time;
    Some(Full {
        heartbeat: str::from_utf8(payload).ok()?.to_owned(),
        auth: HeartbeatAuth {
            signature: STANDARD.encode(signature),
            nonce: STANDARD.encode(nonce),
            timestamp: Some(i64::from(time)),
            report: Some(STANDARD.encode(report)),
            report_signature: Some(STANDARD.encode(report_signature)),
            ..HeartbeatAuth::default()
        },
        public_key: AgentKey::from_bytes(*public_key).ok()?,
        job_ids: match job_ids {
            0 => JobIds::Plain,
            1 => JobIds::Hashed,
            2 => JobIds::None,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use hpc_schema::heartbeat::{HeartbeatRequest, verify_heartbeat};
    use hpc_schema::key::ZebraVerifier;

    use super::*;
    use crate::vectors::Vectors;

    /// Every vector that is accepted, verified, with the key.
    fn accepted(vectors: &Vectors) -> Vec<(HeartbeatRequest<'_>, VerifiedHeartbeat, AgentKey)> {
        let verified = vectors.readable().filter_map(|(_, request, against)| {
            let verified = verify_heartbeat(&request, &against, &ZebraVerifier).ok()?;
            Some((request, verified, vectors.key))
        });
        verified.collect()
    }

    #[test]
    fn what_is_stored_of_each_accepted_vector_says_what_the_agent_signed() {
        let vectors = Vectors::read();
        let all = accepted(&vectors);
        assert!(all.len() >= 2);
        for (request, verified, key) in all {
            let stored = full(&request.heartbeat, &verified, &key, JobIds::Plain);
            let read = read(&stored).unwrap();
            assert_eq!(read.heartbeat, request.heartbeat.get());
            assert_eq!((read.public_key, read.job_ids), (key, JobIds::Plain));
            let sent = HeartbeatAuth {
                timestamp: Some(i64::from(verified.report.time)),
                node_id: None,
                public_key: None,
                section: None,
                ..request.auth
            };
            assert_eq!(read.auth, sent);
        }
    }

    #[test]
    fn a_row_of_before_is_read_and_one_that_is_cut_off_is_not() {
        let vectors = Vectors::read();
        let (request, verified, key) = accepted(&vectors).remove(0);
        let before = serde_json::json!({
            "heartbeat": &request.heartbeat, "auth": &request.auth, "public_key": key, "job_ids": "hashed",
        });
        let read_before = read(before.to_string().as_bytes()).unwrap();
        assert_eq!(read_before.auth, request.auth);
        assert_eq!(read_before.job_ids, JobIds::Hashed);
        let stored = full(&request.heartbeat, &verified, &key, JobIds::None);
        for length in 0..BESIDE {
            assert!(read(&stored[..length]).is_none(), "{length}");
        }
        let mut other = stored;
        other[1] = 3;
        assert!(read(&other).is_none());
    }
}
