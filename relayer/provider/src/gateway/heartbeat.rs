use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hpc_schema::code::Code;
use hpc_schema::gateway::{
    ChainStatus, ConfigUpdates, HeartbeatResponse, HeartbeatResponseBody, Notice, Peer,
    next_heartbeat_seconds,
};
use hpc_schema::heartbeat::HealthStatus;
use hpc_schema::registry::JobIds;
use hpc_schema::time::{Rfc3339, UnixSeconds};

use super::answer::Failure;
use super::body::Announced;
use super::connection::{Connection, Look};
use super::orders::{self, Told};
use super::path::PathIds;
use super::{Gateway, body};
use crate::admission::{Judged, Ruling, Verdict};
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
        let mut response = Response::new(Body::from(bytes));
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// A request under way: on which connection, for which node by its path, and who asked when its head was there.
pub(super) struct Asked<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) connection: &'a Connection,
    pub(super) path_node: &'a str,
    pub(super) announced: Announced,
    pub(super) came: Moment,
    pub(super) look: Look,
}

/// What becomes of a heartbeat, and what is around its node then.
struct Outcome {
    /// As the node says, if it was accepted.
    health: Option<HealthStatus>,
    errors: Vec<Notice>,
    /// Whether what it says of its orders is taken: with a heartbeat that was verified, for a stolen certificate alone says
    /// nothing.
    verified: bool,
    around: Around,
}

/// `POST …/{node_id}/heartbeat` over mutual TLS.
pub(super) async fn heartbeat(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    PathIds(path_node): PathIds<String>,
    request: Request,
) -> Result<Answer, Failure> {
    let came = Moment::now();
    let asked = Asked {
        gateway: &gateway,
        connection: &connection,
        path_node: &path_node,
        announced: Announced::by(request.headers()),
        came,
        look: connection.look(&gateway, came.seconds()),
    };
    receive(asked, &mut request.into_body()).await
}

/// The same without the router. Thousands wait here, so what they wait with is small: all that is done at once is done in
/// functions that wait for nothing, and what is seldom waited for has memory of its own.
pub(super) async fn receive<B>(mut asked: Asked<'_>, body: &mut B) -> Result<Answer, Failure>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let bytes = asked.body(body).await?;
    let now_ms = clock::now_ms();
    let (mut judged, peer) = asked.judge(bytes, now_ms)?;
    let Ruling {
        verdict,
        acknowledgements: acks,
    } = judged.ruling().await;
    let mut outcome = asked.outcome(peer, verdict, now_ms)?;
    let gateway = asked.gateway;
    if outcome.verified && !acks.is_empty() {
        // The database is waited for: until then nothing is held, and what is around may change.
        drop(outcome.around);
        Box::pin(orders::acknowledge(gateway, peer, &acks, now_ms)).await?;
        outcome.around = gateway.registry.around(asked.connection.whose(peer));
    }
    let told = match gateway.controls.commands(&peer.cluster_id, &peer.node_id) {
        Some(rows) => Box::pin(orders::told(gateway, peer, &rows, UnixSeconds(now_ms / 1000))).await,
        None => Told::default(),
    };
    answer(gateway, peer, outcome, told, now_ms)
}

impl<'a> Asked<'a> {
    async fn body<B>(&self, body: &mut B) -> Result<Bytes, Failure>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let limits = &self.gateway.live.get().gateway;
        let (most, within) = (limits.max_body_bytes, limits.request_timeout.duration());
        body::read_of(self.announced, body, most, (&self.connection.pace, within)).await
    }

    /// Has the whole request read and judged, as the node's of this certificate. What was seen of the node goes with it.
    fn judge(&mut self, body: Bytes, now_ms: u64) -> Result<(Judged<'a>, &'a PeerIdentity), Failure> {
        let (gateway, connection) = (self.gateway, self.connection);
        if self.came.at.elapsed() > AT_ONCE {
            self.look = connection.look(gateway, UnixSeconds(now_ms / 1000));
        }
        let peer = connection.node_at(self.path_node, &self.look)?;
        let seen = std::mem::take(&mut self.look.seen);
        let nonces = &connection.held.nonces;
        Ok((gateway.judge.judge(peer, nonces, body, seen, now_ms), peer))
    }

    fn count(&self, result: &'static str) {
        let labels = HeartbeatLabels { result };
        self.gateway.metrics.heartbeats.get_or_create(&labels).inc();
    }

    /// What a verdict comes to, on record.
    fn outcome(&self, peer: &PeerIdentity, verdict: Verdict, now_ms: u64) -> Result<Outcome, Failure> {
        let registry = &self.gateway.registry;
        let whose = self.connection.whose(peer);
        let (cluster, node_id) = (whose.cluster, whose.node);
        match verdict {
            Verdict::Accepted {
                epoch,
                sequence,
                health,
            } => {
                self.count("accepted");
                let seconds = self.came.at.elapsed().as_secs_f64();
                self.gateway.metrics.accept_seconds.0.observe(seconds);
                let from = self.connection.ip();
                Ok(Outcome {
                    health: Some(health),
                    errors: Vec::new(),
                    verified: true,
                    around: registry.accepted(whose, epoch, sequence, now_ms, from),
                })
            }
            Verdict::Refused {
                refusal,
                node,
                repeated,
            } => {
                // It may have been read since it was looked for.
                let known_by_now = || registry.node(cluster, node_id).is_some();
                if refusal.code == Code::UnknownNode && (registry.is_unread(cluster) || known_by_now()) {
                    self.count("unavailable");
                    return Err(Failure::unread());
                }
                self.count(refusal.code.as_str());
                tracing::debug!(%cluster, node = %node_id, code = %refusal.code, "heartbeat refused: {}", refusal.message);
                // Let go of first: a node that changes while it is held is copied.
                let known = node.map(drop).is_some();
                Ok(Outcome {
                    health: None,
                    errors: vec![Notice::from(&refusal)],
                    verified: repeated,
                    around: if known {
                        registry.turned_away(whose, refusal.code, now_ms)
                    } else {
                        registry.around(whose)
                    },
                })
            }
            Verdict::Problem { status, refusal } => {
                self.count(refusal.code.as_str());
                Err(Failure::new(status, refusal))
            }
            Verdict::Unavailable(e) => {
                self.count("unavailable");
                Err(e.into())
            }
            Verdict::Unjudged => {
                self.count("unavailable");
                let what = "the heartbeat could not be judged; the gateway's log says why";
                Err(Failure::unavailable(5, what))
            }
        }
    }
}

/// The specification's response.
fn answer(
    gateway: &Gateway,
    peer: &PeerIdentity,
    outcome: Outcome,
    told: Told,
    now_ms: u64,
) -> Result<Answer, Failure> {
    let live = gateway.live.get();
    let now = UnixSeconds(now_ms / 1000);
    let Outcome {
        health,
        mut errors,
        around,
        ..
    } = outcome;
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
