//! What may be done.

use hpc_schema::command::CommandType;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{TaskState, TaskType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::call::{Call, Done, Nothing};
use super::which::{InCluster, OfCommand, OfCredential, OfKey, OfNode, OfTask, OfToken};
use crate::admin::{AdminError, Certificates, Drain, Order, Submission};
use crate::clock;
use crate::control::Disabled;
use crate::enrol::Applicant;
use crate::task::TaskRow;

type Answer<T> = Result<T, AdminError>;

const DONE: Done = Done { done: true };

/// Why a node is disabled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Disable {
    /// One line of up to 256 bytes; the node shows it.
    #[schemars(length(min = 1, max = 256))]
    reason: String,
}

/// About a drain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainBody {
    /// For people; becomes public.
    #[schemars(length(max = 256))]
    reason: Option<String>,
    /// For how long a drained node that is switched off is not deregistered, in seconds; without it 7 days.
    #[schemars(range(min = 1, max = 31_622_400))]
    lasts_seconds: Option<u64>,
}

/// The transaction.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OnChain {
    /// Its hash, upper-case hex.
    tx: String,
}

/// An order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Send {
    /// The node.
    node_id: NodeId,
    /// Its cluster, if several have a node of this id.
    cluster_id: Option<ClusterId>,
    /// `shutdown`, `update_agent` or `run_diagnostic`; drain and resume have paths of their own.
    #[serde(rename = "type")]
    kind: CommandType,
    /// See docs/protocol.md, section 2.5.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    parameters: Option<Box<RawValue>>,
    /// Not to be begun later than so many seconds from now; without it an hour.
    #[schemars(range(min = 1, max = 604_800))]
    deadline_seconds: Option<u64>,
}

/// An order that is on record.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Sent {
    /// Its id.
    command_id: String,
}

/// A task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubmitTask {
    /// Its id; the same submission may be repeated under it. Without it a new one is drawn.
    task_id: Option<TaskId>,
    /// The node.
    node_id: NodeId,
    /// Its cluster, if several have a node of this id.
    cluster_id: Option<ClusterId>,
    /// What is to be done: a type of schema/tasks/catalog.json.
    #[serde(rename = "type")]
    kind: TaskType,
    /// By the type's schema.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    params: Option<Box<RawValue>>,
    /// Not to be begun later than so many seconds from now; without it an hour.
    #[schemars(range(min = 1, max = 604_800))]
    expires_seconds: Option<u64>,
}

/// How a task stands that was taken back.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskStands {
    /// `cancelled`, or what it was: then its node is told to end it.
    state: TaskState,
}

/// Which certificates: name either.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Revoke {
    /// The one with this SHA-256, hex.
    #[schemars(length(min = 1, max = 128))]
    fingerprint: Option<String>,
    /// The one of this serial number, hex; refused if several CAs have given it.
    #[schemars(length(min = 1, max = 64))]
    serial: Option<String>,
    /// All of this node.
    node_id: Option<NodeId>,
    /// Its cluster, if several have a node of this id.
    cluster_id: Option<ClusterId>,
}

/// How many certificates were revoked.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RevokedCertificates {
    /// So many counted until now.
    revoked: u64,
}

/// A token was taken back.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RevokedToken {
    /// A registration with it is in a transaction already. The node gets no certificate; if it appears on chain,
    /// deregister it.
    registration_is_sent: bool,
}

/// A node that waited was refused.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Rejected {
    /// Its key, base64.
    public_key: String,
}

pub(super) async fn disable(call: Call<OfNode, InCluster, Disable>) -> Answer<Disabled> {
    let (node, cluster) = (&call.path.node_id, call.query.cluster_id.as_ref());
    call.desk
        .disable(&call.by, node, cluster, &call.body.reason)
        .await
}

pub(super) async fn enable(call: Call<OfNode, InCluster, Nothing>) -> Answer<Done> {
    let cluster = call.query.cluster_id.as_ref();
    call.desk.enable(&call.by, &call.path.node_id, cluster).await?;
    Ok(DONE)
}

pub(super) async fn drain(call: Call<OfNode, InCluster, DrainBody>) -> Answer<OnChain> {
    let DrainBody {
        reason,
        lasts_seconds,
    } = call.body;
    let drain = Drain {
        node_id: &call.path.node_id,
        cluster_id: call.query.cluster_id.as_ref(),
        kind: CommandType::Drain,
        reason,
        until: lasts_seconds.map(|s| clock::now().plus(s)),
    };
    let tx = call.desk.drain(&call.by, drain).await?;
    Ok(OnChain { tx })
}

pub(super) async fn resume(call: Call<OfNode, InCluster, Nothing>) -> Answer<OnChain> {
    let drain = Drain {
        node_id: &call.path.node_id,
        cluster_id: call.query.cluster_id.as_ref(),
        kind: CommandType::Resume,
        reason: None,
        until: None,
    };
    let tx = call.desk.drain(&call.by, drain).await?;
    Ok(OnChain { tx })
}

pub(super) async fn send(call: Call<Nothing, Nothing, Send>) -> Answer<Sent> {
    let body = call.body;
    let order = Order {
        node_id: &body.node_id,
        cluster_id: body.cluster_id.as_ref(),
        kind: body.kind,
        parameters: body.parameters.as_deref().map_or("{}", RawValue::get),
        deadline_seconds: body.deadline_seconds.unwrap_or(3600),
    };
    let command_id = call.desk.send(&call.by, &order).await?;
    Ok(Sent { command_id })
}

pub(super) async fn cancel(call: Call<OfCommand, Nothing, Nothing>) -> Answer<Done> {
    call.desk.cancel(&call.by, &call.path.command_id).await?;
    Ok(DONE)
}

pub(super) async fn submit_task(call: Call<Nothing, Nothing, SubmitTask>) -> Answer<TaskRow> {
    let body = call.body;
    let submission = Submission {
        task_id: body.task_id.as_ref(),
        node_id: &body.node_id,
        cluster_id: body.cluster_id.as_ref(),
        kind: body.kind,
        params: body.params.as_deref().map_or("{}", RawValue::get),
        expires_seconds: body.expires_seconds.unwrap_or(3600),
    };
    call.desk.submit_task(&call.by, &submission).await
}

pub(super) async fn cancel_task(call: Call<OfTask, InCluster, Nothing>) -> Answer<TaskStands> {
    let cluster = call.query.cluster_id.as_ref();
    let state = call
        .desk
        .cancel_task(&call.by, &call.path.task_id, cluster)
        .await?;
    Ok(TaskStands { state })
}

pub(super) async fn approve_task(call: Call<OfTask, InCluster, Nothing>) -> Answer<TaskRow> {
    let cluster = call.query.cluster_id.as_ref();
    call.desk
        .approve_task(&call.by, &call.path.task_id, cluster)
        .await
}

pub(super) async fn revoke_token(call: Call<OfToken, Nothing, Nothing>) -> Answer<RevokedToken> {
    let registration_is_sent = call.desk.revoke_token(&call.by, &call.path.jti).await?;
    Ok(RevokedToken { registration_is_sent })
}

pub(super) async fn approve(call: Call<OfNode, OfKey, Nothing>) -> Answer<Done> {
    call.desk.approve(&call.by, applicant(&call)).await?;
    Ok(DONE)
}

pub(super) async fn reject(call: Call<OfNode, OfKey, Nothing>) -> Answer<Rejected> {
    let public_key = call.desk.reject(&call.by, applicant(&call)).await?;
    Ok(Rejected { public_key })
}

fn applicant(call: &Call<OfNode, OfKey, Nothing>) -> Applicant<'_> {
    Applicant {
        node_id: &call.path.node_id,
        cluster_id: call.query.cluster_id.as_ref(),
        public_key: call.query.public_key.as_ref(),
    }
}

pub(super) async fn revoke_certificates(call: Call<Nothing, Nothing, Revoke>) -> Answer<RevokedCertificates> {
    let Revoke {
        fingerprint,
        serial,
        node_id,
        cluster_id,
    } = &call.body;
    let which = Certificates::one_of(
        fingerprint.as_deref(),
        serial.as_deref(),
        node_id.as_ref(),
        cluster_id.as_ref(),
    )?;
    let revoked = call.desk.revoke_certificates(&call.by, which).await?;
    Ok(RevokedCertificates { revoked })
}

pub(super) async fn reload(call: Call<Nothing, Nothing, Nothing>) -> Answer<Done> {
    call.desk.reload(&call.by).await?;
    Ok(DONE)
}

pub(super) async fn revoke_credential(call: Call<OfCredential, Nothing, Nothing>) -> Answer<Done> {
    call.desk.revoke_credential(&call.by, &call.path.id).await?;
    call.api.credentials.forget();
    Ok(DONE)
}
