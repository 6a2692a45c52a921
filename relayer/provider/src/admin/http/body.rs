use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::answer::Failure;
use crate::unread::DISCARD;

/// Largest body: tokens for some thousands of nodes.
const MAX: usize = 1024 * 1024;
/// How long it may take to arrive.
const WITHIN: Duration = Duration::from_secs(10);

/// The body as JSON of a known shape.
pub(super) async fn json<B: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<B, Failure> {
    let bytes = timeout(WITHIN, gather(body)).await.unwrap_or_else(|_| {
        let what = format!("the body did not arrive within {} s", WITHIN.as_secs());
        Err(Failure::new(408, Refusal::whole(Code::Malformed, what)))
    })?;
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split(';').next())
        .unwrap_or_default();
    let json = kind.trim().eq_ignore_ascii_case("application/json");
    if !json || headers.get(CONTENT_ENCODING).is_some_and(|v| v != "identity") {
        let what = "the body must come as application/json, without Content-Encoding";
        return Err(Failure::new(415, Refusal::whole(Code::Malformed, what)));
    }
    serde_json::from_slice(&bytes).map_err(|e| Failure::malformed("body", e))
}

async fn gather(mut body: Body) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::malformed("body", "ends before its length"))?;
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total <= MAX {
            bytes.extend_from_slice(&data);
        } else {
            bytes = Vec::new();
        }
        if total > DISCARD {
            break;
        }
    }
    if total <= MAX {
        return Ok(bytes);
    }
    let what = format!("the body has more than {MAX} bytes");
    Err(Failure::new(413, Refusal::whole(Code::BodyTooLarge, what)))
}
