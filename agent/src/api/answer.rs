//! Answers as they are sent.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::state::Status;
use crate::status::Trouble;

/// Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Why there is no other answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Refused {
    /// What is wrong.
    pub(super) error: String,
    /// What to do.
    pub(super) remedy: String,
}

/// Status, type and text of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    /// A value as JSON.
    pub(super) fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(body) => Self {
                status,
                kind: "application/json",
                body,
            },
            Err(e) => Self {
                status: 500,
                kind: "text/plain",
                body: e.to_string(),
            },
        }
    }

    /// Metrics.
    pub(super) fn metrics(body: String) -> Self {
        Self {
            status: 200,
            kind: METRICS,
            body,
        }
    }

    /// A refusal.
    pub(super) fn refused(status: u16, error: &str, remedy: &str) -> Self {
        let refused = Refused {
            error: error.to_owned(),
            remedy: remedy.to_owned(),
        };
        Self::json(status, &refused)
    }

    /// As it goes out; `head` leaves the body away.
    pub(super) fn into_response(self, head: bool) -> Response<Full<Bytes>> {
        let length = self.body.len();
        let body = if head { String::new() } else { self.body };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if head {
            headers.insert(hyper::header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        match self.status {
            401 => headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            405 => headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD")),
            429 => headers.insert(RETRY_AFTER, HeaderValue::from_static("1")),
            _ => None,
        };
        response
    }
}

/// `/healthz` and `/readyz`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Probe {
    /// `ok`, or what is missing.
    pub(super) status: &'static str,
    /// What is wrong, each with its remedy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<Trouble>,
}

/// `/v1/status`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StatusAnswer {
    /// Nothing is wrong.
    pub(super) healthy: bool,
    /// What is, each with its remedy.
    pub(super) problems: Vec<Trouble>,
    /// How the agent is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
}

/// A slice's machine.
pub(super) const SLICE: &str = "/metrics/slices/{vm_name}";

/// Every path, and what it says.
pub(super) const PATHS: [(&str, &str); 7] = [
    ("/healthz", "Whether the agent's loop turns"),
    (
        "/readyz",
        "Whether the node is registered and its heartbeats are accepted",
    ),
    ("/v1/capacity", "What this host is and has"),
    ("/v1/status", "How the agent is doing"),
    ("/metrics", "Figures in Prometheus' text format"),
    (
        SLICE,
        "What libvirt says of a slice's machine, in the same format",
    ),
    ("/openapi.json", "This interface"),
];
