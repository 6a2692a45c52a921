use std::any::TypeId;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRequestParts as _, Path, Query, Request, State};
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::answer::Failure;
use super::{Api, body};
use crate::admin::{Act, Admin, AdminError};
use crate::audit::{Actor, Role};

/// No path parameters, no query, or no body.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

/// Done; there is nothing to say.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Done {
    /// Always true.
    pub(crate) done: bool,
}

/// One request, read and admitted.
#[derive(Debug)]
pub(super) struct Call<P, Q, B> {
    pub(super) desk: Admin,
    pub(super) api: Arc<Api>,
    pub(super) by: Actor,
    pub(super) path: P,
    pub(super) query: Q,
    pub(super) body: B,
}

/// What stands about an operation in the OpenAPI document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) method: &'static str,
    /// After the prefix.
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) role: Role,
    /// Problems beside those that any request may meet.
    pub(crate) also: &'static [u16],
    /// How long it may take, and beside how many others.
    pub(crate) pace: Pace,
}

/// What an operation waits for. Each kind has places of its own, so that what waits never keeps the rest from being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The store alone.
    Soon,
    /// A block.
    Block,
    /// News of a task.
    News,
}

impl Pace {
    /// How long it may take.
    fn within(self) -> Duration {
        Duration::from_secs(match self {
            Self::Soon => 20,
            Self::Block => 75,
            Self::News => 45,
        })
    }
}

/// The schemas of an operation; none: nothing of the kind.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) path: Option<Schema>,
    pub(crate) query: Option<Schema>,
    pub(crate) body: Option<Schema>,
    pub(crate) answer: Schema,
}

/// One operation: what it is called, what it takes and gives, and what does it.
pub(crate) struct Endpoint {
    pub(crate) spec: Spec,
    pub(crate) shape: fn(&mut SchemaGenerator) -> Shape,
    pub(super) service: MethodRouter<Arc<Api>>,
}

/// Something that is read from a request.
pub(super) trait Input: DeserializeOwned + JsonSchema + Send + 'static {}
impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for T {}

fn absent<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<Nothing>()
}

fn schema_of<T: JsonSchema + 'static>(generator: &mut SchemaGenerator) -> Option<Schema> {
    (!absent::<T>()).then(|| generator.subschema_for::<T>())
}

/// Parameters are taken apart, so they need their schema in place.
fn inline<T: JsonSchema + 'static>(generator: &mut SchemaGenerator) -> Option<Schema> {
    (!absent::<T>()).then(|| T::json_schema(generator))
}

/// An operation of this shape.
pub(super) fn endpoint<P: Input, Q: Input, B: Input, A, F>(
    spec: Spec,
    run: fn(Call<P, Q, B>) -> F,
) -> Endpoint
where
    A: Serialize + JsonSchema + Send + 'static,
    F: Future<Output = Result<A, AdminError>> + Send + 'static,
{
    let filter = match spec.method {
        "get" => MethodFilter::GET,
        _ => MethodFilter::POST,
    };
    let service = move |State(api): State<Arc<Api>>, Extension(by): Extension<Actor>, request: Request| async move {
        match answer(spec, run, api, by, request).await {
            Ok(response) => response,
            Err(failure) => failure.into_response(),
        }
    };
    Endpoint {
        spec,
        shape: |generator| Shape {
            path: inline::<P>(generator),
            query: inline::<Q>(generator),
            body: schema_of::<B>(generator),
            answer: generator.subschema_for::<A>(),
        },
        service: on(filter, service),
    }
}

async fn answer<P: Input, Q: Input, B: Input, A, F>(
    spec: Spec,
    run: fn(Call<P, Q, B>) -> F,
    api: Arc<Api>,
    by: Actor,
    request: Request,
) -> Result<Response, Failure>
where
    A: Serialize + Send + 'static,
    F: Future<Output = Result<A, AdminError>> + Send + 'static,
{
    if by.role < spec.role {
        return Err(forbidden(spec, &api, &by).await);
    }
    let (mut parts, sent) = request.into_parts();
    let Path(path) = Path::<P>::from_request_parts(&mut parts, &())
        .await
        .map_err(|e| Failure::malformed("path", e))?;
    let Query(query) = Query::<Q>::from_request_parts(&mut parts, &())
        .await
        .map_err(|e| Failure::malformed("query", e))?;
    let body = if absent::<B>() {
        serde_json::from_str("{}").map_err(|e| Failure::malformed("body", e))?
    } else {
        body::json(&parts.headers, sent).await?
    };
    let Ok(place) = api.places.of(spec.pace).try_acquire_owned() else {
        return Err(Failure::unavailable(match spec.pace {
            Pace::Soon => "too many requests are worked on",
            Pace::Block => "too many requests wait for the chain",
            Pace::News => "too many requests wait for news",
        }));
    };
    let call = Call {
        desk: api.desk(),
        api,
        by,
        path,
        query,
        body,
    };
    // To its end, even if whoever asks hangs up: what is begun is recorded.
    let running = tokio::spawn(async move {
        let done = run(call).await;
        drop(place);
        done
    });
    let done = match timeout(spec.pace.within(), running).await {
        Ok(Ok(done)) => done?,
        Ok(Err(_)) => {
            return Err(Failure::unavailable(
                "it stopped unexpectedly; see the gateway's log",
            ));
        }
        Err(_) => {
            return Err(Failure::unavailable(
                "it takes long and goes on; look again later",
            ));
        }
    };
    let mut response = axum::Json(done).into_response();
    // Tokens and the state of nodes belong into nobody's cache.
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Who may look and tries to act is on record.
async fn forbidden(spec: Spec, api: &Api, by: &Actor) -> Failure {
    let message = format!(
        "{} needs the role {}, yours is {}; ask an admin for another credential",
        spec.id, spec.role, by.role
    );
    let detail = serde_json::json!({ "code": "not_authorized", "needs": spec.role });
    let what = ("admin.forbidden", spec.id.to_owned());
    match Act::note(&api.store, by, what, "refused", detail).await {
        Ok(()) => Failure::forbidden(message),
        Err(e) => AdminError::from(e).into(),
    }
}
