//! Orders, tasks, slots.

use std::time::Duration;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::task::{SliceSlot, TaskState};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::args::{WhichSlotArgs, WhichTask, Whose};
use super::super::who;
use super::{Desk, all, done, place};
use crate::admin::{AdminError, ApprovedSlot, Order, Seen, SlotSize, Submission, TaskFull, WhichSlot};
use crate::command::CommandRow;
use crate::slot::{SlotRow, SlotState};
use crate::task::TaskRow;

#[derive(Deserialize)]
struct Sent {
    command_id: String,
}

#[derive(Deserialize)]
struct Stands {
    state: TaskState,
}

/// A JSON object that somebody typed; the listener says what is wrong with its members.
fn object<'a>(flag: &str, text: &'a str) -> Result<&'a RawValue, AdminError> {
    let wrong = |e| AdminError::field(hpc_schema::code::Code::InvalidField, flag, e);
    serde_json::from_str(text).map_err(wrong)
}

fn of(cluster: Option<&ClusterId>) -> [(&'static str, Option<&str>); 1] {
    [("cluster_id", cluster.map(ClusterId::as_str))]
}

fn meant(which: &WhichSlotArgs) -> WhichSlot<'_> {
    WhichSlot {
        node_id: &which.whose.node_id,
        cluster_id: which.whose.cluster_id.as_ref(),
        slot_id: &which.slot_id,
    }
}

impl Desk {
    /// Gives the order's id.
    pub(in crate::cli) async fn send(&self, order: &Order<'_>) -> Result<String, AdminError> {
        match self {
            Self::Here(admin, _) => admin.send(&who(), order).await,
            Self::There(remote) => {
                let body = json!({
                    "node_id": order.node_id, "cluster_id": order.cluster_id, "type": order.kind,
                    "parameters": object("parameters", order.parameters)?, "deadline_seconds": order.deadline_seconds,
                });
                let sent: Sent = remote.post(&["commands"], &[], &body).await?;
                Ok(sent.command_id)
            }
        }
    }

    pub(in crate::cli) async fn orders(
        &self,
        node: Option<&NodeId>,
        limit: u32,
    ) -> anyhow::Result<Vec<CommandRow>> {
        all(Some(limit), async |window| match self {
            Self::Here(admin, _) => admin.orders(None, node, window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                let [after, limit] = place(&window, &limit);
                let query = [("node_id", node.map(NodeId::as_str)), after, limit];
                remote.get(&["commands"], &query).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn order(&self, id: &str) -> Result<CommandRow, AdminError> {
        match self {
            Self::Here(admin, _) => admin.order(id).await,
            Self::There(remote) => remote.get(&["commands", id], &[]).await,
        }
    }

    pub(in crate::cli) async fn cancel(&self, id: &str) -> Result<(), AdminError> {
        match self {
            Self::Here(admin, _) => admin.cancel(&who(), id).await,
            Self::There(remote) => done(remote.post(&["commands", id, "cancel"], &[], &json!({})).await),
        }
    }

    pub(in crate::cli) async fn submit_task(&self, what: &Submission<'_>) -> Result<TaskRow, AdminError> {
        match self {
            Self::Here(admin, _) => admin.submit_task(&who(), what).await,
            Self::There(remote) => {
                let body = json!({
                    "task_id": what.task_id, "node_id": what.node_id, "cluster_id": what.cluster_id, "type": what.kind,
                    "params": object("params", what.params)?, "expires_seconds": what.expires_seconds,
                });
                remote.post(&["tasks"], &[], &body).await
            }
        }
    }

    pub(in crate::cli) async fn tasks(
        &self,
        node: Option<&NodeId>,
        state: Option<TaskState>,
        limit: u32,
    ) -> anyhow::Result<Vec<TaskRow>> {
        all(Some(limit), async |window| match self {
            Self::Here(admin, _) => admin.tasks(node, state, window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                let [after, limit] = place(&window, &limit);
                let query = [
                    ("node_id", node.map(NodeId::as_str)),
                    ("state", state.map(TaskState::as_str)),
                    after,
                    limit,
                ];
                remote.get(&["tasks"], &query).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn task_full(&self, which: &WhichTask) -> Result<TaskFull, AdminError> {
        let (id, cluster) = (&which.task_id, which.cluster_id.as_ref());
        match self {
            Self::Here(admin, _) => admin.task_full(id, cluster).await,
            Self::There(remote) => remote.get(&["tasks", id.as_str()], &of(cluster)).await,
        }
    }

    /// The task as soon as there is news of it, or as it is after `within` of at most 30 s.
    pub(in crate::cli) async fn wait_task(
        &self,
        which: &WhichTask,
        seen: Seen,
        within: Duration,
    ) -> Result<TaskFull, AdminError> {
        let (id, cluster) = (&which.task_id, which.cluster_id.as_ref());
        match self {
            Self::Here(admin, news) => admin.wait_task(id, cluster, seen, within, news.subscribe()).await,
            Self::There(remote) => {
                let (progress, seconds) = (
                    seen.progress.to_string(),
                    within.as_secs().clamp(1, 30).to_string(),
                );
                let [cluster] = of(cluster);
                let query = [
                    cluster,
                    ("state", seen.state.map(TaskState::as_str)),
                    ("progress", Some(progress.as_str())),
                    ("seconds", Some(seconds.as_str())),
                ];
                remote.get(&["tasks", id.as_str(), "wait"], &query).await
            }
        }
    }

    pub(in crate::cli) async fn cancel_task(&self, which: &WhichTask) -> Result<TaskState, AdminError> {
        let (id, cluster) = (&which.task_id, which.cluster_id.as_ref());
        match self {
            Self::Here(admin, _) => admin.cancel_task(&who(), id, cluster).await,
            Self::There(remote) => {
                let path = ["tasks", id.as_str(), "cancel"];
                let stands: Stands = remote.post(&path, &of(cluster), &json!({})).await?;
                Ok(stands.state)
            }
        }
    }

    pub(in crate::cli) async fn approve_task(&self, which: &WhichTask) -> Result<TaskRow, AdminError> {
        let (id, cluster) = (&which.task_id, which.cluster_id.as_ref());
        match self {
            Self::Here(admin, _) => admin.approve_task(&who(), id, cluster).await,
            Self::There(remote) => {
                let path = ["tasks", id.as_str(), "approve"];
                remote.post(&path, &of(cluster), &json!({})).await
            }
        }
    }

    pub(in crate::cli) async fn slots(
        &self,
        cluster: Option<&ClusterId>,
        node: Option<&NodeId>,
        state: Option<SlotState>,
    ) -> anyhow::Result<Vec<SlotRow>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.slots(cluster, node, state, window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                let [after, limit] = place(&window, &limit);
                let query = [
                    ("cluster_id", cluster.map(ClusterId::as_str)),
                    ("node_id", node.map(NodeId::as_str)),
                    ("state", state.map(SlotState::as_str)),
                    after,
                    limit,
                ];
                remote.get(&["slots"], &query).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn add_slot(
        &self,
        whose: &Whose,
        slot: SliceSlot,
    ) -> Result<SlotRow, AdminError> {
        let (node, cluster) = (&whose.node_id, whose.cluster_id.as_ref());
        match self {
            Self::Here(admin, _) => admin.add_slot(&who(), node, cluster, slot).await,
            Self::There(remote) => {
                let body = json!({ "node_id": node, "cluster_id": cluster, "slot": slot });
                remote.post(&["slots"], &[], &body).await
            }
        }
    }

    pub(in crate::cli) async fn approve_slot(
        &self,
        which: &WhichSlotArgs,
        size: SlotSize,
    ) -> Result<ApprovedSlot, AdminError> {
        match self {
            Self::Here(admin, _) => admin.approve_slot(&who(), meant(which), size).await,
            Self::There(remote) => {
                let body = json!({ "vcpu_count": size.vcpu_count, "memory_mib": size.memory_mib });
                let (node, slot) = (which.whose.node_id.as_str(), which.slot_id.as_str());
                let path = ["nodes", node, "slots", slot, "approve"];
                remote
                    .post(&path, &of(which.whose.cluster_id.as_ref()), &body)
                    .await
            }
        }
    }

    pub(in crate::cli) async fn retire_slot(&self, which: &WhichSlotArgs) -> Result<SlotRow, AdminError> {
        match self {
            Self::Here(admin, _) => admin.retire_slot(&who(), meant(which)).await,
            Self::There(remote) => {
                let (node, slot) = (which.whose.node_id.as_str(), which.slot_id.as_str());
                let path = ["nodes", node, "slots", slot, "retire"];
                remote
                    .post(&path, &of(which.whose.cluster_id.as_ref()), &json!({}))
                    .await
            }
        }
    }
}
