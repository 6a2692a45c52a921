use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hpc_schema::code::Code;
use hpc_schema::command::Acknowledgement;
use hpc_schema::gateway::{
    ChainStatus, ConfigUpdates, HeartbeatResponse, HeartbeatResponseBody, Notice, Peer,
    next_heartbeat_seconds,
};
use hpc_schema::heartbeat::{HealthStatus, HeartbeatRequest};
use hpc_schema::registry::JobIds;
use hpc_schema::time::{Rfc3339, UnixSeconds};

use super::answer::Failure;
use super::body::Announced;
use super::connection::{Connection, Look};
use super::path::PathIds;
use super::{Gateway, body, orders};
use crate::admission::Verdict;
use crate::clock::{self, Moment};
use crate::config::Agents;
use crate::identity::PeerIdentity;
use crate::ops::HeartbeatLabels;
use crate::registry::{Around, Seen};

/// So far behind the database weighs as an eighth of the queue does; a second is usual.
const BEHIND_SECONDS: u64 = 5;
/// A body that is there so soon after its head came with it: who asks stands as when it was let in.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Bytes that an answer mostly has at most.
const USUAL: usize = 1024;

/// An answer as JSON.
pub(super) struct Answer(HeartbeatResponseBody);

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut bytes = Vec::with_capacity(USUAL);
        if let Err(e) = serde_json::to_writer(&mut bytes, &self.0) {
            return Failure::unavailable(60, e).into_response();
        }
        let json = HeaderValue::from_static("application/json");
        ([(CONTENT_TYPE, json)], bytes).into_response()
    }
}

/// `POST …/{node_id}/heartbeat` over mutual TLS.
pub(super) async fn heartbeat(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    PathIds(path_node): PathIds<String>,
    request: Request,
) -> Result<Answer, Failure> {
    let announced = Announced::by(request.headers());
    let body = &mut request.into_body();
    let came = Moment::now();
    let look = connection.look(&gateway, came.seconds());
    receive(&gateway, &connection, &path_node, (announced, body), (came, look)).await
}

/// The same without the router, of a request that `came` then from who is seen by that `look`.
pub(super) async fn receive<B>(
    gateway: &Arc<Gateway>,
    connection: &Connection,
    path_node: &str,
    (announced, body): (Announced, &mut B),
    (came, mut look): (Moment, Look),
) -> Result<Answer, Failure>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let live = gateway.live.get();
    let limits = &live.gateway;
    let within = limits.request_timeout.duration();
    let time = (&*connection.pace, within);
    let bytes = body::read_of(announced, body, limits.max_body_bytes, time).await?;
    let now_ms = clock::now_ms();
    if came.at.elapsed() > AT_ONCE {
        look = connection.look(gateway, UnixSeconds(now_ms / 1000));
    }
    let peer = connection.node_at(path_node, &look)?;
    let (cluster, node_id) = (&peer.cluster_id, &peer.node_id);
    let count = |result: &'static str| {
        gateway
            .metrics
            .heartbeats
            .get_or_create(&HeartbeatLabels { result })
            .inc();
    };
    let mut request = match HeartbeatRequest::parse(&bytes) {
        Ok(request) => request,
        Err(refusal) => {
            count(refusal.code.as_str());
            let status = if refusal.code == Code::BodyTooLarge {
                413
            } else {
                400
            };
            return Err(Failure::new(status, refusal));
        }
    };
    let acks = std::mem::take(&mut request.acknowledgements);
    let again = || HeartbeatRequest::parse(&bytes).ok();
    let judged = gateway
        .judge
        .judge(peer, path_node, &request, look.seen, now_ms, again);
    drop(request);
    match judged.await {
        Verdict::Accepted {
            epoch,
            sequence,
            health,
        } => {
            count("accepted");
            gateway
                .metrics
                .accept_seconds
                .0
                .observe(came.at.elapsed().as_secs_f64());
            let from = connection.ip();
            let mut around = gateway
                .registry
                .accepted(cluster, node_id, epoch, sequence, now_ms, from);
            if !acks.is_empty() {
                // The database is waited for: until then nothing is held, and what is around may change.
                drop(around);
                acknowledge(gateway, peer, &acks, now_ms).await?;
                around = gateway.registry.around(cluster, node_id);
            }
            answer(gateway, peer, &around, Some(health), Vec::new(), now_ms).await
        }
        Verdict::Refused {
            refusal,
            node,
            repeated,
        } => {
            // It may have been read since it was looked for.
            let known_by_now = || gateway.registry.node(cluster, node_id).is_some();
            if refusal.code == Code::UnknownNode && (gateway.registry.is_unread(cluster) || known_by_now()) {
                count("unavailable");
                return Err(Failure::unread());
            }
            count(refusal.code.as_str());
            tracing::debug!(%cluster, node = %node_id, code = %refusal.code, "heartbeat refused: {}", refusal.message);
            if node.is_some() {
                gateway
                    .registry
                    .turned_away(cluster, node_id, refusal.code, now_ms);
            }
            if repeated && !acks.is_empty() {
                acknowledge(gateway, peer, &acks, now_ms).await?;
            }
            let around = gateway.registry.around(cluster, node_id);
            answer(gateway, peer, &around, None, vec![Notice::from(&refusal)], now_ms).await
        }
        Verdict::Problem { status, refusal } => {
            count(refusal.code.as_str());
            Err(Failure::new(status, refusal))
        }
        Verdict::Unavailable(e) => {
            count("unavailable");
            Err(e.into())
        }
    }
}

/// Takes what the node says of its orders: with a heartbeat that was verified, for a stolen certificate alone says nothing.
async fn acknowledge(
    gateway: &Gateway,
    peer: &PeerIdentity,
    acks: &[Acknowledgement],
    now_ms: u64,
) -> Result<(), Failure> {
    // Apart: what is seldom needed makes no other request's memory larger.
    Box::pin(orders::acknowledge(gateway, peer, acks, now_ms)).await
}

/// The specification's response; `around` with what the heartbeat has changed, `health` if it was accepted.
async fn answer(
    gateway: &Gateway,
    peer: &PeerIdentity,
    around: &Around,
    health: Option<HealthStatus>,
    mut errors: Vec<Notice>,
    now_ms: u64,
) -> Result<Answer, Failure> {
    let live = gateway.live.get();
    let now = UnixSeconds(now_ms / 1000);
    let Seen { node, cluster } = &around.seen;
    if health.is_some() && cluster.as_ref().is_some_and(|c| !c.active) {
        errors.push(Notice::new(
            Code::ClusterInactive,
            "the cluster is not active; the node stays PENDING",
        ));
    }
    if let Some((code, sequence)) = node.as_ref().and_then(|n| n.refused) {
        errors.push(Notice::new(
            code,
            format_args!("report {sequence} was accepted here and refused by the chain"),
        ));
    }
    let nanos = u32::try_from(now_ms % 1000 * 1_000_000).unwrap_or(0);
    let timestamp =
        Rfc3339::from_unix(now.0, nanos).map_err(|_| Failure::unavailable(60, "the clock is wrong"))?;
    let interval = u32::try_from(live.batch.submit_interval.as_secs()).unwrap_or(u32::MAX);
    let stretch = stretch(gateway.judge.load_permille(), gateway.judge.behind());
    let next = next_heartbeat_seconds(
        &around.params,
        health.unwrap_or(HealthStatus::Healthy),
        interval,
        stretch,
    );
    let peers = around.neighbours(&peer.node_id, live.agents.probe_neighbours, now);
    let told = match gateway.controls.commands(&peer.cluster_id, &peer.node_id) {
        Some(rows) => Box::pin(orders::told(gateway, peer, &rows, now)).await,
        None => orders::Told::default(),
    };
    let response = HeartbeatResponse {
        accepted: health.is_some(),
        sequence_ack: node.as_ref().map_or(0, |n| u64::from(n.floor())),
        timestamp,
        next_heartbeat_seconds: next,
        commands: told.commands,
        task_keys: told.task_keys,
        config_updates: config_updates(&live.agents, cluster.as_ref().map(|c| c.job_ids), &peers),
        errors,
        chain: node.as_ref().map(|n| ChainStatus {
            latency_ms: around.tip.latency_ms,
            height: around.tip.height,
            settled_sequence: n.chain.sequence,
            epoch: n.chain.epoch,
            node_state: n.chain.state,
        }),
        peers,
    };
    Ok(Answer(HeartbeatResponseBody { response }))
}

/// By how much the interval is stretched: once more for each eighth of the queue that is filled, or for each few seconds that
/// the database is behind the journal, whichever is more.
fn stretch(load_permille: usize, behind: Duration) -> u32 {
    let by_queue = u32::try_from(load_permille / 125).unwrap_or(u32::MAX);
    let by_journal = u32::try_from(behind.as_secs() / BEHIND_SECONDS).unwrap_or(u32::MAX);
    by_queue.max(by_journal).saturating_add(1)
}

fn config_updates(agents: &Agents, job_ids: Option<JobIds>, peers: &[Peer]) -> Option<ConfigUpdates> {
    let targets: Vec<_> = peers.iter().map(|p| p.node_id.clone()).collect();
    let updates = ConfigUpdates {
        sampling_interval_seconds: agents.sampling_interval_seconds,
        latency_probe_targets: (!targets.is_empty()).then_some(targets),
        metrics_retention_hours: agents.metrics_retention_hours,
        // The owner may change it at any time; the section must follow.
        job_ids,
    };
    (updates != ConfigUpdates::default()).then_some(updates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_queue_and_a_database_that_is_behind_stretch_the_interval_alike() {
        let seconds = Duration::from_secs;
        for (permille, behind, times) in [
            (0, seconds(0), 1),
            (124, seconds(4), 1),
            (125, seconds(0), 2),
            (0, seconds(5), 2),
            (0, Duration::from_millis(9_999), 2),
            (0, seconds(10), 3),
            (250, seconds(5), 3),
            (1000, seconds(0), 9),
            (0, seconds(60), 13),
            (0, Duration::MAX, u32::MAX),
        ] {
            assert_eq!(stretch(permille, behind), times, "{permille} {behind:?}");
        }
    }
}
