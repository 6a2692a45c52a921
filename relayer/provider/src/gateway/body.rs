use std::pin::pin;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use tokio::time::timeout;

use super::answer::Failure;
use super::pace::Pace;
use crate::unread::DISCARD;

/// What a request's head says of its body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announced {
    /// Its length; 0: it does not say.
    length: usize,
    encoded: bool,
    /// For leave to send it.
    waits: bool,
}

impl Announced {
    pub(super) fn by(headers: &HeaderMap) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
        Self {
            length: length.and_then(|v| v.parse().ok()).unwrap_or(0),
            encoded: headers.get(CONTENT_ENCODING).is_some_and(|v| v != "identity"),
            waits: headers.contains_key(EXPECT),
        }
    }

    /// Whether what is left of it is thrown away before the answer goes out.
    pub(super) fn is_thrown_away(self) -> bool {
        !self.waits && self.length <= DISCARD
    }

    /// Whether it is to be read at all: not if it is too large, and not thrown away either.
    fn fits(self, limit: usize) -> Result<(), Failure> {
        if self.length > limit && !self.is_thrown_away() {
            return Err(too_large(limit));
        }
        Ok(())
    }

    /// What is taken of it, once it has arrived; none: it has not within that time.
    fn arrived(self, gathered: Option<Result<Bytes, Failure>>, within: Duration) -> Result<Bytes, Failure> {
        let bytes = gathered.unwrap_or_else(|| {
            let what = format!("the body did not arrive within {} s", within.as_secs());
            Err(Failure::new(
                408,
                Refusal::whole(Code::Malformed, what).malformed(),
            ))
        })?;
        // Nobody here inflates anything: a compressed body is thrown away as it came.
        if self.encoded {
            let what = "the body must come without Content-Encoding";
            return Err(Failure::new(
                415,
                Refusal::whole(Code::Malformed, what).malformed(),
            ));
        }
        Ok(bytes)
    }
}

/// The whole body, if it is at most `limit` bytes and arrives in time.
pub(super) async fn read(request: Request, limit: usize, within: Duration) -> Result<Bytes, Failure> {
    let announced = Announced::by(request.headers());
    announced.fits(limit)?;
    let mut body = request.into_body();
    let gathered = timeout(within, gather(&mut body, limit)).await.ok();
    announced.arrived(gathered, within)
}

/// The same of a body that stays with who answers, by the timer of its connection.
pub(super) async fn read_of<B>(
    announced: Announced,
    body: &mut B,
    limit: usize,
    (pace, within): (&Pace, Duration),
) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    announced.fits(limit)?;
    let gathering = pin!(gather(body, limit));
    let gathered = pace.within(within, gathering).await;
    announced.arrived(gathered, within)
}

async fn gather<B>(body: &mut B, limit: usize) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    // Most bodies come in one piece, which stays what it is.
    let (mut first, mut bytes) = (Bytes::new(), Vec::new());
    let mut total = 0usize;
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|_| Failure::malformed("body", "ends before its length"))?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total > DISCARD {
            break;
        }
        if total > limit {
            (first, bytes) = (Bytes::new(), Vec::new());
        } else if total == data.len() {
            first = data;
        } else {
            bytes.extend_from_slice(&std::mem::take(&mut first));
            bytes.extend_from_slice(&data);
        }
    }
    if total > limit {
        Err(too_large(limit))
    } else if bytes.is_empty() {
        Ok(first)
    } else {
        Ok(bytes.into())
    }
}

fn too_large(limit: usize) -> Failure {
    let what = format!("the body has more than {limit} bytes");
    Failure::new(413, Refusal::whole(Code::BodyTooLarge, what))
}

/// The body as JSON of a known shape; a refusal names the member at fault.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|e| match member::<T>(bytes) {
        Some(member) => Failure::malformed(&member, e),
        None => Failure::malformed("body", e),
    })
}

/// Path of the member at which reading stops; none if it is the whole.
fn member<T: DeserializeOwned>(bytes: &[u8]) -> Option<String> {
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let at = serde_path_to_error::deserialize::<_, T>(json).err()?;
    // Of the whole there are none.
    let named = at.path().iter().any(|s| !matches!(s, Segment::Unknown));
    named.then(|| at.path().to_string())
}

#[cfg(test)]
mod tests {
    use hpc_schema::gateway::RegisterRequest;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_that_cannot_be_read_names_the_member_at_fault() {
        let key = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
        let sound = json!({
            "token": "a.b.c", "public_key": key, "csr": "x", "csr_signature": "x", "probe_address": "10.0.0.7",
            "attestation": { "public": "", "quote": "", "signature": "", "pcrs": [{ "index": 0, "sha256": "" }] },
        });
        let read = |value: &serde_json::Value| json::<RegisterRequest>(value.to_string().as_bytes());
        assert!(read(&sound).is_ok());
        for (at, value, field) in [
            ("/public_key", json!("x"), "public_key"),
            ("/probe_address", json!("nowhere"), "probe_address"),
            ("/csr", json!(7), "csr"),
            (
                "/attestation/pcrs/0/index",
                json!(256),
                "attestation.pcrs[0].index",
            ),
        ] {
            let mut broken = sound.clone();
            *broken.pointer_mut(at).unwrap() = value;
            let failure = read(&broken).unwrap_err();
            assert_eq!((failure.status, failure.refusal.code), (400, Code::Malformed));
            assert_eq!(failure.refusal.field.as_deref(), Some(field));
        }
        for whole in ["", "{", "[]x", "7"] {
            let failure = json::<RegisterRequest>(whole.as_bytes()).unwrap_err();
            assert_eq!(failure.refusal.field.as_deref(), Some("body"), "{whole}");
        }
    }
}
