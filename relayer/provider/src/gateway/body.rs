use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::answer::Failure;
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
}

/// The whole body, if it is at most `limit` bytes and arrives in time.
pub(super) async fn read(request: Request, limit: usize, within: Duration) -> Result<Bytes, Failure> {
    let announced = Announced::by(request.headers());
    read_of(announced, &mut request.into_body(), limit, within).await
}

/// The same of a body that stays with who answers.
pub(super) async fn read_of<B>(
    announced: Announced,
    body: &mut B,
    limit: usize,
    within: Duration,
) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    if announced.length > limit && (announced.waits || announced.length > DISCARD) {
        return Err(too_large(limit));
    }
    let bytes = timeout(within, gather(body, limit)).await.unwrap_or_else(|_| {
        let what = format!("the body did not arrive within {} s", within.as_secs());
        Err(Failure::new(
            408,
            Refusal::whole(Code::Malformed, what).malformed(),
        ))
    })?;
    // Nobody here inflates anything: a compressed body is thrown away as it came.
    if announced.encoded {
        let what = "the body must come without Content-Encoding";
        return Err(Failure::new(
            415,
            Refusal::whole(Code::Malformed, what).malformed(),
        ));
    }
    Ok(bytes)
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

/// The body as JSON of a known shape.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|e| Failure::malformed("body", e))
}
