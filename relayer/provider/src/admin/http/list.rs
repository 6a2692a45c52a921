//! Lists, a page at a time.

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::task::TaskState;
use schemars::JsonSchema;
use serde::Deserialize;

use super::call::{Call, Nothing};
use crate::admin::credential::Credential;
use crate::admin::{AdminError, NodeRow, Shown, Waiting};
use crate::alert::{self, AlertRow};
use crate::audit::AuditPage;
use crate::command::CommandRow;
use crate::enrol::{CertificateRow, JoinRow, TokenRow};
use crate::page::{Page, Window};
use crate::slot::{SlotRow, SlotState};
use crate::task::TaskRow;

type Answer<T> = Result<Page<T>, AdminError>;

/// Which part of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Paged {
    /// `next` of the page before.
    #[schemars(length(max = 1024))]
    after: Option<String>,
    /// At most so many, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Which nodes, and which part of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Only of this cluster.
    cluster_id: Option<ClusterId>,
    /// Only of this node.
    node_id: Option<NodeId>,
    /// `next` of the page before.
    #[schemars(length(max = 1024))]
    after: Option<String>,
    /// At most so many, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Which tasks, and which part of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhichTasks {
    /// Only of this node.
    node_id: Option<NodeId>,
    /// Only in this state.
    state: Option<TaskState>,
    /// `next` of the page before.
    #[schemars(length(max = 1024))]
    after: Option<String>,
    /// At most so many, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Which slots, and which part of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhichSlots {
    /// Only of this cluster.
    cluster_id: Option<ClusterId>,
    /// Only of this node.
    node_id: Option<NodeId>,
    /// Only in this state.
    state: Option<SlotState>,
    /// `next` of the page before.
    #[schemars(length(max = 1024))]
    after: Option<String>,
    /// At most so many, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// Which rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// Only those after the row of this number: `next` of the page before.
    after: Option<u64>,
    /// The newest of all instead.
    newest: Option<bool>,
    /// At most so many, 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

fn window(after: Option<&String>, limit: Option<u32>) -> Window<'_> {
    Window {
        after: after.map(String::as_str),
        limit,
    }
}

impl Paged {
    fn window(&self) -> Window<'_> {
        window(self.after.as_ref(), self.limit)
    }
}

impl Which {
    fn parts(&self) -> (Option<&ClusterId>, Option<&NodeId>, Window<'_>) {
        let window = window(self.after.as_ref(), self.limit);
        (self.cluster_id.as_ref(), self.node_id.as_ref(), window)
    }
}

pub(super) async fn nodes(call: Call<Nothing, Which, Nothing>) -> Answer<NodeRow> {
    let (cluster, node, window) = call.query.parts();
    call.desk.nodes(cluster, node, window).await
}

pub(super) async fn commands(call: Call<Nothing, Which, Nothing>) -> Answer<CommandRow> {
    let (cluster, node, window) = call.query.parts();
    call.desk.orders(cluster, node, window).await
}

pub(super) async fn certificates(call: Call<Nothing, Which, Nothing>) -> Answer<CertificateRow> {
    let (cluster, node, window) = call.query.parts();
    call.desk.certificates(node, cluster, window).await
}

pub(super) async fn tasks(call: Call<Nothing, WhichTasks, Nothing>) -> Answer<TaskRow> {
    let WhichTasks {
        node_id,
        state,
        after,
        limit,
    } = &call.query;
    let window = window(after.as_ref(), *limit);
    call.desk.tasks(node_id.as_ref(), *state, window).await
}

pub(super) async fn slots(call: Call<Nothing, WhichSlots, Nothing>) -> Answer<SlotRow> {
    let WhichSlots {
        cluster_id,
        node_id,
        state,
        after,
        limit,
    } = &call.query;
    let window = window(after.as_ref(), *limit);
    call.desk
        .slots(cluster_id.as_ref(), node_id.as_ref(), *state, window)
        .await
}

pub(super) async fn alerts(call: Call<Nothing, Paged, Nothing>) -> Answer<AlertRow> {
    Ok(alert::list(call.desk.store.reader(), call.query.window()).await?)
}

pub(super) async fn tokens(call: Call<Nothing, Paged, Nothing>) -> Answer<Shown<TokenRow>> {
    call.desk.tokens(call.query.window()).await
}

pub(super) async fn join_tokens(call: Call<Nothing, Paged, Nothing>) -> Answer<Shown<JoinRow>> {
    call.desk.join_tokens(call.query.window()).await
}

pub(super) async fn waiting(call: Call<Nothing, Paged, Nothing>) -> Answer<Waiting> {
    call.desk.waiting(call.query.window()).await
}

pub(super) async fn credentials(call: Call<Nothing, Paged, Nothing>) -> Answer<Credential> {
    call.desk.credentials(call.query.window()).await
}

pub(super) async fn audit(call: Call<Nothing, After, Nothing>) -> Result<AuditPage, AdminError> {
    let After { after, newest, limit } = call.query;
    let reader = call.desk.store.reader();
    if newest == Some(true) {
        return Ok(AuditPage::newest(reader, limit).await?);
    }
    Ok(AuditPage::after(reader, after.unwrap_or(0), limit).await?)
}
