use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;
use tokio::sync::watch;

use super::Api;
use super::answer::Failure;
use crate::admin::AdminError;
use crate::admin::credential::Presented;
use crate::admission::network;
use crate::audit::Actor;
use crate::clock;

const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) ip: IpAddr,
    /// It has shown a certificate: an agent's, for no one else has one of our CA.
    pub(super) certificate: bool,
    /// The id of the last credential that it has shown and that counted.
    pub(super) credential: watch::Sender<Option<String>>,
}

/// Lets a request on with its actor, or answers why not. Whoever shows nothing that counts, or asks too much, gets no second
/// try on the same connection.
pub(super) async fn guard(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&api, &caller, request.headers()).await {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    };
    let status = response.status();
    if caller.certificate || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

async fn admit(api: &Api, caller: &Caller, headers: &HeaderMap) -> Result<Actor, Failure> {
    if caller.certificate {
        api.log_once(caller.ip, "a node's certificate at the admin listener");
        let message =
            "a node's certificate is no credential here; connect without it and show an admin token";
        return Err(Failure::forbidden(message.to_owned()));
    }
    let bytes: usize = headers.iter().map(|(k, v)| k.as_str().len() + v.len() + 4).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let what = format!("the head has more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes");
        return Err(Failure::new(431, Refusal::whole(Code::BodyTooLarge, what)));
    }
    let now = clock::steady();
    let shown = headers
        .get(AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .and_then(|(_, text)| Presented::parse(text.trim()));
    let actor = match &shown {
        Some(presented) => api
            .credentials
            .authenticate(api.store.reader(), presented, clock::now())
            .await
            .map_err(AdminError::from)?,
        None => None,
    };
    let (Some(actor), Some(presented)) = (actor, shown) else {
        return Err(match api.failures.take(network(caller.ip), now) {
            Ok(()) => {
                api.log_once(caller.ip, "an admin request without a credential that counts");
                Failure::unauthorized()
            }
            Err(wait) => Failure::rate_limited(wait.as_secs().max(1)),
        });
    };
    let id = &presented.id;
    caller.credential.send_if_modified(|last| {
        let other = last.as_ref() != Some(id);
        if other {
            *last = Some(id.clone());
        }
        other
    });
    api.requests
        .take(presented.id, now)
        .map_err(|wait| Failure::rate_limited(wait.as_secs().max(1)))?;
    Ok(actor)
}
