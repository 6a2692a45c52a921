//! What may be looked at.

use std::time::Duration;

use hpc_chain::proof::Proof;
use hpc_schema::id::ClusterId;
use hpc_schema::task::TaskState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::{Call, Nothing};
use super::which::{InCluster, OfCommand, OfNode, OfTask};
use crate::admin::{AdminError, NodeFull, Seen, Status, TaskFull};
use crate::command::CommandRow;

type Answer<T> = Result<T, AdminError>;

/// Longest wait for news of a task in seconds.
const LONGEST_WAIT: u64 = 30;

/// Which node's cluster, and how much of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HowMuch {
    /// Its cluster, if several have a node of this id.
    cluster_id: Option<ClusterId>,
    /// How many of its ended reports are shown, the newest: up to 1000.
    #[schemars(range(max = 1000))]
    reports: Option<u32>,
}

/// Which heartbeat of a node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhichHeartbeat {
    /// The node's cluster, if several have a node of this id.
    cluster_id: Option<ClusterId>,
    /// Of which registration; without it the newest.
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    epoch: Option<u64>,
    /// Its sequence; without it the newest that can be proven.
    sequence: Option<u32>,
}

/// A file that `virtengine proof verify` checks.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct ProofFile(#[schemars(with = "serde_json::Map<String, serde_json::Value>")] Proof);

/// What of a task is known already.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Its cluster, if several have a task of this id.
    cluster_id: Option<ClusterId>,
    /// The state that is known; without it the answer comes at once.
    state: Option<TaskState>,
    /// How many of its phases are known: the answer has those that follow.
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    progress: Option<u64>,
    /// How long to wait for news, 1 to 30; without it 20.
    #[schemars(range(min = 1, max = 30))]
    seconds: Option<u64>,
}

pub(super) async fn document(call: Call<Nothing, Nothing, Nothing>) -> Answer<Map<String, Value>> {
    Ok(call.api.document.clone())
}

pub(super) async fn status(call: Call<Nothing, Nothing, Nothing>) -> Answer<Status> {
    Ok(call.desk.status(Some(call.api.health.readiness())).await?)
}

pub(super) async fn node(call: Call<OfNode, HowMuch, Nothing>) -> Answer<NodeFull> {
    let HowMuch { cluster_id, reports } = call.query;
    let reports = reports.unwrap_or(20).min(1000);
    call.desk
        .node(&call.path.node_id, cluster_id.as_ref(), reports)
        .await
}

pub(super) async fn proof(call: Call<OfNode, WhichHeartbeat, Nothing>) -> Answer<ProofFile> {
    let WhichHeartbeat {
        cluster_id,
        epoch,
        sequence,
    } = call.query;
    let proof = call
        .desk
        .prove(&call.path.node_id, cluster_id.as_ref(), epoch, sequence)
        .await?;
    Ok(ProofFile(proof))
}

pub(super) async fn command(call: Call<OfCommand, Nothing, Nothing>) -> Answer<CommandRow> {
    call.desk.order(&call.path.command_id).await
}

pub(super) async fn task(call: Call<OfTask, InCluster, Nothing>) -> Answer<TaskFull> {
    let cluster = call.query.cluster_id.as_ref();
    call.desk.task_full(&call.path.task_id, cluster).await
}

pub(super) async fn wait(call: Call<OfTask, Known, Nothing>) -> Answer<TaskFull> {
    let Known {
        cluster_id,
        state,
        progress,
        seconds,
    } = call.query;
    let seen = Seen {
        state,
        progress: progress.unwrap_or(0),
    };
    let within = Duration::from_secs(seconds.unwrap_or(20).clamp(1, LONGEST_WAIT));
    let news = call.api.news.subscribe();
    call.desk
        .wait_task(&call.path.task_id, cluster_id.as_ref(), seen, within, news)
        .await
}
