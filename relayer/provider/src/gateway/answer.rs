use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hpc_schema::code::Code;
use hpc_schema::gateway::Problem;
use hpc_schema::refusal::Refusal;

use super::once::Seldom;
use crate::clock;
use crate::control::Disabled;
use crate::store::StoreError;

/// What is said to whoever shows one.
pub(super) const REVOKED: &str = "the client certificate has been revoked";

/// A request that is not answered as it wished: `application/problem+json` with a stable code.
#[derive(Debug)]
pub struct Failure {
    pub(super) status: u16,
    pub(super) refusal: Refusal,
    pub(super) retry_after: Option<u64>,
    /// What the log says of it, where the status alone does not tell.
    pub(super) told: Option<Told>,
}

/// What an operator is told of a request that is turned away, in stable words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told(pub(super) &'static str);

impl Failure {
    /// With this status.
    #[must_use]
    pub fn new(status: u16, refusal: Refusal) -> Self {
        Self {
            status,
            refusal,
            retry_after: None,
            told: None,
        }
    }

    /// 400: bytes that cannot be read.
    pub(super) fn malformed(field: &str, what: impl std::fmt::Display) -> Self {
        Self::new(400, Refusal::field(Code::Malformed, field, what).malformed())
    }

    /// 403 with this code.
    pub(super) fn forbidden(code: Code, what: impl std::fmt::Display) -> Self {
        Self::new(403, Refusal::whole(code, what))
    }

    /// The same, for this member of the request.
    #[must_use]
    pub(super) fn of(mut self, field: &str) -> Self {
        self.refusal.field = Some(field.to_owned());
        self
    }

    /// 401: a certificate that counts no more; `told` is what the log says of it. The agent's key gets a new one.
    pub(super) fn certificate(told: &'static str, what: impl std::fmt::Display) -> Self {
        let what = format!("{what}; recover it at …/certificate/challenge");
        Self {
            told: Some(Told(told)),
            ..Self::new(401, Refusal::whole(Code::IdentityMismatch, what))
        }
    }

    /// 401: a certificate that an operator has revoked.
    pub(super) fn revoked() -> Self {
        Self::certificate("a certificate that was revoked", REVOKED)
    }

    /// 429: come again after so many seconds.
    pub(super) fn rate_limited(seconds: u64) -> Self {
        Self {
            status: 429,
            refusal: Refusal::whole(Code::RateLimited, "too many requests"),
            retry_after: Some(seconds),
            told: None,
        }
    }

    /// 503: the gateway cannot answer now; come again after so many seconds.
    pub(super) fn unavailable(seconds: u64, what: impl std::fmt::Display) -> Self {
        Self {
            status: 503,
            refusal: Refusal::whole(Code::Unavailable, what),
            retry_after: Some(seconds),
            told: None,
        }
    }

    /// 404; 503 while the chain may have the node and the gateway has not read it: whoever is told that it is not registered
    /// may register anew.
    pub(super) fn unregistered(refusal: Refusal, unread: bool) -> Self {
        if unread {
            Self::unread()
        } else {
            Self::new(404, refusal)
        }
    }

    /// 503: the nodes of the cluster have not been read from the chain since the start.
    pub(super) fn unread() -> Self {
        Self::unavailable(
            5,
            "the gateway does not know the node, and has not read from the chain yet which nodes there are",
        )
    }
}

impl From<&Disabled> for Refusal {
    fn from(d: &Disabled) -> Self {
        let what = format!("the operator has disabled the node: {}", d.reason);
        Self::whole(Code::NodeDisabled, what)
    }
}

impl From<&Disabled> for Failure {
    fn from(d: &Disabled) -> Self {
        Self::new(403, d.into())
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        static LOGGED: Seldom = Seldom::new();
        if let Some(others) = LOGGED.note(clock::steady()) {
            tracing::error!(error = %e, others, "a request could not be served; others since the last such line");
        }
        match e {
            StoreError::Busy => Self::unavailable(5, "more waits than the gateway can work off in time"),
            _ => Self::unavailable(5, "the gateway's store is not available"),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = Problem::new(self.status, &self.refusal);
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(problem)).into_response();
        if let Some(told) = self.told {
            response.extensions_mut().insert(told);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_place_is_told_when_to_come_again() {
        let failure = Failure::from(StoreError::Busy);
        assert_eq!((failure.status, failure.retry_after), (503, Some(5)));
        assert_eq!(failure.refusal.code, Code::Unavailable);
        let response = failure.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "5");
    }
}
