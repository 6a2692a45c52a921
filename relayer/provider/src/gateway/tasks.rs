use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::refusal::{Refusal, RefusalKind};
use hpc_schema::task::{ProgressRequest, TaskHash};
use tokio::time::{Instant, sleep_until};

use super::answer::Failure;
use super::certificate::{may_have_one, not_disabled};
use super::claim::claim;
use super::connection::Connection;
use super::path::PathIds;
use super::{Gateway, body};
use crate::clock;
use crate::identity::PeerIdentity;
use crate::store::StoreError;
use crate::task::{self, Given, Noted, Woken};

/// The longest that a node may wait.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// How long a node waits that does not say.
const USUAL_WAIT: Duration = Duration::from_secs(30);
const MAX_PROGRESS_BYTES: usize = 4 * 1024;

/// `GET …/{node_id}/tasks/wait` over mutual TLS: what is there for the node, or what comes within its time.
pub(super) async fn wait(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    PathIds(path_node): PathIds<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    parked(&gateway, &connection, &path_node, query.as_deref()).await
}

/// The same without the router. Thousands wait here: what is needed only now and then has memory of its own.
pub(super) async fn parked(
    gateway: &Gateway,
    connection: &Connection,
    path_node: &str,
    query: Option<&str>,
) -> Result<Response, Failure> {
    let until = Instant::now() + wished(query)?;
    let peer = known(gateway, connection, path_node)?;
    // From here on no wake-up is lost; who waited for this node before waits no more.
    let parked = gateway.waiting.park(&peer.cluster_id, &peer.node_id);
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    let now = clock::now_ms();
    let mut look = Box::pin(task::waits_for(gateway.store.reader(), (cluster, node), now)).await?;
    loop {
        if look {
            // It may have been revoked or disabled meanwhile.
            known(gateway, connection, path_node)?;
            if let Some(answer) = Box::pin(claim(gateway, peer)).await? {
                return Ok(Json(answer).into_response());
            }
        }
        tokio::select! {
            woken = parked.woken() => match woken {
                Woken::Look => look = true,
                Woken::Given(answer) => return given(gateway, connection, path_node, *answer),
                Woken::Superseded => {
                    let what = "a newer connection of this node waits for its tasks";
                    return Err(Failure::new(409, Refusal::whole(Code::SessionSuperseded, what)));
                }
                Woken::Ended => return Ok(StatusCode::NO_CONTENT.into_response()),
            },
            () = sleep_until(until) => return match parked.given() {
                Some(answer) => given(gateway, connection, path_node, *answer),
                None => Ok(StatusCode::NO_CONTENT.into_response()),
            },
        }
    }
}

/// A task that was handed over, if the node may still have it; else it is given back.
fn given(
    gateway: &Gateway,
    connection: &Connection,
    path_node: &str,
    given: Given,
) -> Result<Response, Failure> {
    known(gateway, connection, path_node)?;
    Ok(Json(given.take()).into_response())
}

/// `wait_seconds` of the query.
fn wished(query: Option<&str>) -> Result<Duration, Failure> {
    let mut pairs = query.unwrap_or_default().split('&');
    let Some(seconds) = pairs.find_map(|p| p.strip_prefix("wait_seconds=")) else {
        return Ok(USUAL_WAIT);
    };
    let whole = seconds
        .parse()
        .map_err(|_| Failure::malformed("wait_seconds", "must be a whole number of seconds"))?;
    Ok(Duration::from_secs(whole).min(LONGEST_WAIT))
}

/// The node, if the certificate is its, counts, and it may work.
fn known<'a>(
    gateway: &Gateway,
    connection: &'a Connection,
    path_node: &str,
) -> Result<&'a PeerIdentity, Failure> {
    let peer = connection.node(gateway, path_node, clock::now())?;
    let unread = gateway.registry.is_unread(&peer.cluster_id);
    let node = gateway.registry.node(&peer.cluster_id, &peer.node_id);
    may_have_one(gateway, node.as_deref(), unread)?;
    Ok(peer)
}

pub(super) fn task_id(text: &str) -> Result<TaskId, Failure> {
    text.parse().map_err(|e| Failure::malformed("task_id", e))
}

pub(super) fn refused(refusal: Refusal) -> Failure {
    let status = match (refusal.kind, refusal.code) {
        (RefusalKind::Malformed, _) => 400,
        (_, Code::UnknownTask) => 404,
        (_, Code::BodyTooLarge) => 413,
        _ => 409,
    };
    Failure::new(status, refusal)
}

/// `POST …/{node_id}/tasks/{task_id}/progress`.
pub(super) async fn progress(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    PathIds((path_node, path_task)): PathIds<(String, String)>,
    request: Request,
) -> Result<StatusCode, Failure> {
    let within = gateway.live.get().gateway.request_timeout.duration();
    let bytes = body::read(request, MAX_PROGRESS_BYTES, within).await?;
    let peer = connection.node(&gateway, &path_node, clock::now())?;
    let id = task_id(&path_task)?;
    let progress: ProgressRequest = body::json(&bytes)?;
    if progress.phase.is_empty() || progress.phase.len() > 48 {
        return Err(Failure::malformed("phase", "must have 1 to 48 bytes"));
    }
    let hash = TaskHash::from_hex(&progress.task_hash)
        .ok_or_else(|| Failure::malformed("task_hash", "must be the lower-case hex of 32 bytes"))?;
    let of = (&peer.cluster_id, &peer.node_id);
    not_disabled(&gateway, of.0, of.1)?;
    let lease = gateway.config.tasks.lease.duration();
    let times = (
        u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        clock::now_ms(),
    );
    let mut tx = gateway.store.begin().await?;
    let noted = task::note(&mut tx, of, &id, hash, &progress, times).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let refusal = match noted {
        Noted::Yes => {
            gateway.waiting.tell(of.0, &id);
            return Ok(StatusCode::OK);
        }
        Noted::OtherTask => {
            let what = "is not the hash of the task that the path names";
            Refusal::field(Code::TaskMismatch, "task_hash", what)
        }
        Noted::NotUnderWay => Refusal::field(Code::UnknownTask, "task_id", "is not under way here"),
    };
    Err(refused(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_waits_as_long_as_it_says_and_not_for_longer_than_it_may() {
        let of = |query: Option<&str>| wished(query).ok().map(|d| d.as_secs());
        assert_eq!(of(None), Some(30));
        assert_eq!(of(Some("x=1&y")), Some(30));
        assert_eq!(of(Some("x=1&wait_seconds=0")), Some(0));
        assert_eq!(of(Some("wait_seconds=121")), Some(120));
        for wrong in ["", "-1", "1.5", "abc", "1%20"] {
            assert_eq!(of(Some(&format!("wait_seconds={wrong}"))), None, "{wrong}");
        }
    }
}
