use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hpc_schema::code::Code;
use hpc_schema::gateway::Problem;
use hpc_schema::refusal::{Refusal, RefusalKind};

use crate::admin::AdminError;

/// Problems that any request may be answered with.
pub(crate) const ALWAYS: &[u16] = &[400, 401, 403, 408, 413, 415, 429, 431, 503];

/// A request that is not answered as it wished: `application/problem+json` with a stable code.
#[derive(Debug)]
pub(super) struct Failure {
    status: u16,
    refusal: Refusal,
    retry_after: Option<u64>,
}

impl Failure {
    pub(super) fn new(status: u16, refusal: Refusal) -> Self {
        Self {
            status,
            refusal,
            retry_after: None,
        }
    }

    /// 400: what cannot be read.
    pub(super) fn malformed(field: &str, what: impl std::fmt::Display) -> Self {
        let message = format!("{field}: {what}; see /api/v1/admin/openapi.json");
        Self::new(400, own(Code::Malformed, message))
    }

    /// 401: no credential that counts.
    pub(super) fn unauthorized() -> Self {
        let message = "a credential that counts is needed: Authorization: Bearer …; make one on the gateway: \
                       virtengine-provider admin-token create";
        Self::new(401, own(Code::NotAuthorized, message.to_owned()))
    }

    /// 403: the credential counts and does not allow this, or another one was shown.
    pub(super) fn forbidden(message: String) -> Self {
        Self::new(403, own(Code::NotAuthorized, message))
    }

    /// 429: come again after so many seconds.
    pub(super) fn rate_limited(seconds: u64) -> Self {
        Self {
            status: 429,
            refusal: Refusal::whole(Code::RateLimited, "too many requests"),
            retry_after: Some(seconds),
        }
    }

    /// 503: not now.
    pub(super) fn unavailable(what: impl std::fmt::Display) -> Self {
        Self {
            status: 503,
            refusal: Refusal::whole(Code::Unavailable, what),
            retry_after: Some(5),
        }
    }
}

/// A refusal whose message has its own remedy.
fn own(code: Code, message: String) -> Refusal {
    Refusal {
        code,
        field: None,
        message,
        kind: RefusalKind::Semantic,
    }
}

impl From<AdminError> for Failure {
    fn from(e: AdminError) -> Self {
        match e {
            AdminError::Missing(refusal) => Self::new(404, refusal),
            AdminError::Refused(refusal) => {
                let status = match refusal.code {
                    Code::InvalidState | Code::AmbiguousNode => 409,
                    _ => 400,
                };
                Self::new(status, refusal)
            }
            AdminError::OnChain(refusal) => Self::new(409, refusal),
            AdminError::Chain(message) => Self::unavailable(format!("the chain did not do it: {message}")),
            // Nobody is asked to send it again by himself.
            AdminError::Unknown { what, .. } => Self {
                retry_after: None,
                ..Self::unavailable(what)
            },
            AdminError::Store(_)
            | AdminError::Random(_)
            | AdminError::Home(_)
            | AdminError::Unreachable(_) => {
                tracing::error!(error = %e, "an admin request could not be served");
                Self::unavailable("the gateway cannot do it now; see its log")
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = Problem::new(self.status, &self.refusal);
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
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
    fn of_what_may_still_take_effect_it_is_not_said_that_the_chain_did_not_do_it() {
        let unknown = Failure::from(AdminError::Unknown {
            what: "query it by its hash".to_owned(),
            tx: [7_u8; 32].into(),
            last_block: 120,
        });
        assert_eq!((unknown.status, unknown.retry_after), (503, None));
        let said = unknown.refusal.message;
        assert!(
            said.contains("by its hash") && !said.contains("did not"),
            "{said}"
        );
    }
}
