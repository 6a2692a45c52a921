//! What may be looked at.

use hpc_chain::proof::Proof;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::TaskState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::act::InCluster;
use super::call::{Call, Nothing};
use crate::admin::credential::Credential;
use crate::admin::{AdminError, NodeFull, NodeRow, Shown, Status, TaskFull, Waiting};
use crate::alert::{self, AlertRow};
use crate::audit::{self, Row};
use crate::command::CommandRow;
use crate::enrol::{CertificateRow, JoinRow, TokenRow};
use crate::openapi;
use crate::task::TaskRow;

type Answer<T> = Result<T, AdminError>;

/// A node.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfNode {
    /// Its id.
    pub(super) node_id: NodeId,
}

/// An order.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfCommand {
    /// Its id.
    #[schemars(length(min = 1, max = 64))]
    pub(super) command_id: String,
}

/// A task.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfTask {
    /// Its id.
    pub(super) task_id: TaskId,
}

/// Which tasks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhichTasks {
    /// Only of this node.
    node_id: Option<NodeId>,
    /// Only in this state.
    state: Option<TaskState>,
    /// At most so many, 1 to 10000.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<u32>,
}

/// Which nodes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Only of this cluster.
    cluster_id: Option<ClusterId>,
    /// Only of this node.
    node_id: Option<NodeId>,
    /// At most so many, 1 to 10000.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<u32>,
}

impl Which {
    fn limit(&self) -> u32 {
        self.limit.unwrap_or(1000).clamp(1, 10_000)
    }
}

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

/// Which rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// Only those after the row of this number.
    after: Option<u64>,
    /// At most so many, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

pub(super) async fn document(_: Call<Nothing, Nothing, Nothing>) -> Answer<Map<String, Value>> {
    Ok(match openapi::document() {
        Value::Object(members) => members,
        _ => Map::new(),
    })
}

pub(super) async fn status(call: Call<Nothing, Nothing, Nothing>) -> Answer<Status> {
    Ok(call.desk.status(Some(call.api.health.reasons())).await?)
}

pub(super) async fn nodes(call: Call<Nothing, Which, Nothing>) -> Answer<Vec<NodeRow>> {
    let Which {
        cluster_id, node_id, ..
    } = &call.query;
    let mut rows = call.desk.nodes(cluster_id.as_ref(), node_id.as_ref()).await?;
    rows.truncate(usize::try_from(call.query.limit()).unwrap_or(usize::MAX));
    Ok(rows)
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

pub(super) async fn alerts(call: Call<Nothing, Nothing, Nothing>) -> Answer<Vec<AlertRow>> {
    Ok(alert::list(call.desk.store.reader()).await?)
}

pub(super) async fn commands(call: Call<Nothing, Which, Nothing>) -> Answer<Vec<CommandRow>> {
    let Which {
        cluster_id, node_id, ..
    } = &call.query;
    let limit = call.query.limit();
    Ok(call
        .desk
        .orders(cluster_id.as_ref(), node_id.as_ref(), limit)
        .await?)
}

pub(super) async fn command(call: Call<OfCommand, Nothing, Nothing>) -> Answer<CommandRow> {
    call.desk.order(&call.path.command_id).await
}

pub(super) async fn tasks(call: Call<Nothing, WhichTasks, Nothing>) -> Answer<Vec<TaskRow>> {
    let WhichTasks {
        node_id,
        state,
        limit,
    } = &call.query;
    let limit = limit.unwrap_or(1000).clamp(1, 10_000);
    Ok(call.desk.tasks(node_id.as_ref(), *state, limit).await?)
}

pub(super) async fn task(call: Call<OfTask, InCluster, Nothing>) -> Answer<TaskFull> {
    let cluster = call.query.cluster_id.as_ref();
    call.desk.task_full(&call.path.task_id, cluster).await
}

pub(super) async fn tokens(call: Call<Nothing, Nothing, Nothing>) -> Answer<Vec<Shown<TokenRow>>> {
    Ok(call.desk.tokens().await?)
}

pub(super) async fn join_tokens(call: Call<Nothing, Nothing, Nothing>) -> Answer<Vec<Shown<JoinRow>>> {
    Ok(call.desk.join_tokens().await?)
}

pub(super) async fn waiting(call: Call<Nothing, Nothing, Nothing>) -> Answer<Vec<Waiting>> {
    Ok(call.desk.waiting().await?)
}

pub(super) async fn certificates(call: Call<Nothing, Which, Nothing>) -> Answer<Vec<CertificateRow>> {
    let Call { desk, query, .. } = &call;
    let (node, cluster) = (query.node_id.as_ref(), query.cluster_id.as_ref());
    Ok(desk.certificates(node, cluster, query.limit()).await?)
}

pub(super) async fn credentials(call: Call<Nothing, Nothing, Nothing>) -> Answer<Vec<Credential>> {
    Ok(call.desk.credentials().await?)
}

pub(super) async fn audit(call: Call<Nothing, After, Nothing>) -> Answer<Vec<Row>> {
    let After { after, limit } = call.query;
    let limit = limit.unwrap_or(audit::MAX_PAGE).clamp(1, audit::MAX_PAGE);
    Ok(audit::page(call.desk.store.reader(), after.unwrap_or(0), limit).await?)
}
