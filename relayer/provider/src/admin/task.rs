use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Params, TaskState, TaskType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::clock;
use crate::control;
use crate::page::{Page, Window};
use crate::registry;
use crate::slot::{self, Claimed};
use crate::store::StoreError;
use crate::task::{self, NewTask, ProgressRow, Submitted, TaskRow};

/// The farthest expiry of a task.
pub const MAX_LIFE_SECONDS: u64 = 7 * 24 * 3600;

/// A task for one node.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    /// Its id; none: drawn. The same task may be submitted again under its id.
    pub task_id: Option<&'a TaskId>,
    /// The node.
    pub node_id: &'a NodeId,
    /// Its cluster, if several have a node of this id.
    pub cluster_id: Option<&'a ClusterId>,
    /// What is to be done.
    pub kind: TaskType,
    /// JSON object.
    pub params: &'a str,
    /// Not to be begun later than so many seconds from now.
    pub expires_seconds: u64,
}

/// A task in full.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskFull {
    /// As in the list.
    #[serde(flatten)]
    pub row: TaskRow,
    /// Its phases, oldest first.
    pub progress: Vec<ProgressRow>,
}

impl<'de> Deserialize<'de> for TaskFull {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        // Flattened members go through a form that has no raw JSON.
        let mut members = serde_json::Map::deserialize(d)?;
        let progress = members.remove("progress").unwrap_or_default();
        Ok(Self {
            row: serde_json::from_value(members.into()).map_err(D::Error::custom)?,
            progress: serde_json::from_value(progress).map_err(D::Error::custom)?,
        })
    }
}

fn target(row: &TaskRow) -> String {
    format!("task {}/{} of {}", row.cluster_id, row.task_id, row.node_id)
}

impl Admin {
    /// Puts a task on record; the node has it at once if it waits for one. Gives the task.
    ///
    /// # Errors
    /// If there is no such node, or the task cannot be.
    pub async fn submit_task(&self, by: &Actor, what: &Submission<'_>) -> Result<TaskRow, AdminError> {
        let mut act = Act::begin(&self.store, by, "task.submit", format!("node {}", what.node_id)).await?;
        let done = self.submit_in(&mut act, by, what).await;
        let row = done.as_ref().ok();
        let detail = json!({
            "type": what.kind, "task_id": row.map(|r| &r.task_id), "hash": row.map(|r| r.hash.to_hex()),
            "approval": row.map(|r| r.approval),
        });
        let row = act.end(done, detail).await?;
        control::nudge(&self.home);
        Ok(row)
    }

    /// Has a node probe its health, by schedule. Its result alone stands in the audit log, which grows for ever: nobody has
    /// decided the rest.
    ///
    /// # Errors
    /// If there is no such node, or it has too many tasks.
    pub async fn submit_probe(
        &self,
        node: &NodeId,
        cluster: &ClusterId,
        expires_seconds: u64,
    ) -> Result<TaskRow, AdminError> {
        let by = Actor::daemon();
        let mut act = Act::begin(&self.store, &by, "task.submit", format!("node {node}")).await?;
        let probe = Submission {
            task_id: None,
            node_id: node,
            cluster_id: Some(cluster),
            kind: TaskType::DiagHealthProbe,
            params: "{}",
            expires_seconds,
        };
        let done = async {
            let row = self.submit_in(&mut act, &by, &probe).await?;
            task::schedule(act.conn(), &row).await?;
            Ok(row)
        };
        let done = done.await;
        let row = act.end_unrecorded(done).await?;
        control::nudge(&self.home);
        Ok(row)
    }

    /// The submission of a task within an act that does more.
    pub(super) async fn submit_in(
        &self,
        act: &mut Act,
        by: &Actor,
        what: &Submission<'_>,
    ) -> Result<TaskRow, AdminError> {
        if !(1..=MAX_LIFE_SECONDS).contains(&what.expires_seconds) {
            let text = "must be 1 s to 7 days from now";
            return Err(AdminError::field(Code::InvalidField, "expires", text));
        }
        let raw: &RawValue = serde_json::from_str(what.params)
            .map_err(|e| AdminError::field(Code::InvalidField, "params", e))?;
        let params = Params::parse(what.kind, raw).map_err(AdminError::Refused)?;
        let cluster_id = self.cluster_of(act, what.node_id, what.cluster_id).await?;
        let Some((chain_id, contract)) = self.store.bound().await? else {
            let text = "the store belongs to no contract; start the daemon once";
            return Err(AdminError::field(Code::InvalidState, "node_id", text));
        };
        let task_id = match what.task_id {
            Some(id) => id.clone(),
            // 32 hex digits are an id.
            None => hex::encode(clock::random::<16>()?)
                .parse()
                .map_err(|e| AdminError::field(Code::InvalidField, "task_id", e))?,
        };
        let now = clock::now();
        let new = NewTask {
            task_id,
            cluster_id,
            node_id: what.node_id.clone(),
            kind: what.kind,
            params: raw.to_owned(),
            nonce: clock::random()?,
            submitted_by: by.name.clone(),
            issued_at: now,
            expires_at: now.plus(what.expires_seconds),
        };
        let (submitted, row) =
            task::submit(act.conn(), &new, (&chain_id, &contract), clock::now_ms()).await?;
        if matches!(submitted, Submitted::Queued | Submitted::Held) {
            let of = (&new.cluster_id, &new.node_id);
            let claimed = slot::claim(act.conn(), of, &new.task_id, &params, clock::now_ms()).await?;
            if let Claimed::No(why) = claimed {
                return Err(AdminError::field(Code::InvalidState, "params.slots", why));
            }
        }
        match submitted {
            Submitted::Queued | Submitted::Held | Submitted::Known => {
                let row = row.ok_or_else(|| missing(&new.task_id))?;
                act.aim(target(&row));
                Ok(row)
            }
            Submitted::Taken => {
                let text = "is another task's";
                Err(AdminError::field(Code::TaskMismatch, "task_id", text))
            }
            Submitted::Full => {
                let text = "has 256 tasks that are not over; cancel some (virtengine-provider task cancel)";
                Err(AdminError::field(Code::InvalidState, "node_id", text))
            }
        }
    }

    /// The cluster of the node that is meant, found by its id alone: there may be thousands of nodes.
    pub(super) async fn cluster_of(
        &self,
        act: &mut Act,
        node: &NodeId,
        cluster: Option<&ClusterId>,
    ) -> Result<ClusterId, AdminError> {
        let mut clusters = registry::clusters_of(act.conn(), node).await?;
        clusters.retain(|c| cluster.is_none_or(|wanted| wanted == c));
        if clusters.len() > 1 {
            let names: Vec<_> = clusters.iter().map(ToString::to_string).collect();
            let text = format!("is in several clusters: {}", names.join(", "));
            return Err(AdminError::field(Code::AmbiguousNode, "node_id", text));
        }
        clusters.pop().ok_or_else(|| {
            let text = format!("{node} is not on record (virtengine-provider node list)");
            AdminError::field(Code::UnknownNode, "node_id", text)
        })
    }

    /// Tasks, newest first: of a node, in a state, or all.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn tasks(
        &self,
        node: Option<&NodeId>,
        state: Option<TaskState>,
        window: Window<'_>,
    ) -> Result<Page<TaskRow>, AdminError> {
        Ok(task::history(self.store.reader(), node, state, window).await?)
    }

    /// The one task of this id.
    ///
    /// # Errors
    /// If there is none, or several clusters have one.
    pub async fn task(&self, id: &TaskId, cluster: Option<&ClusterId>) -> Result<TaskRow, AdminError> {
        let mut conn = self.store.reader().acquire().await.map_err(StoreError::from)?;
        let mut found = task::find(&mut conn, cluster, id).await?;
        if found.len() > 1 {
            let text = "is a task of several clusters; name one with --cluster-id";
            return Err(AdminError::field(Code::UnknownTask, "task_id", text));
        }
        found.pop().ok_or_else(|| missing(id))
    }

    /// The same with its phases.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub async fn task_full(&self, id: &TaskId, cluster: Option<&ClusterId>) -> Result<TaskFull, AdminError> {
        let row = self.task(id, cluster).await?;
        let progress = task::progress_of(self.store.reader(), &row.cluster_id, id, 0).await?;
        Ok(TaskFull { row, progress })
    }

    /// Lets a task be delivered that waits for approval.
    ///
    /// # Errors
    /// If there is none.
    pub async fn approve_task(
        &self,
        by: &Actor,
        id: &TaskId,
        cluster: Option<&ClusterId>,
    ) -> Result<TaskRow, AdminError> {
        let row = self.task(id, cluster).await?;
        let mut act = Act::begin(&self.store, by, "task.approve", target(&row)).await?;
        let approved = async {
            if task::approve(act.conn(), &row.cluster_id, id, &by.name).await? {
                return Ok(());
            }
            let text = format!("does not wait for approval; it is {}", row.state);
            Err(AdminError::field(Code::InvalidState, "task_id", text))
        };
        let approved = approved.await;
        act.end(approved, json!({ "hash": row.hash.to_hex(), "type": row.kind }))
            .await?;
        control::nudge(&self.home);
        self.task(id, cluster).await
    }

    /// Takes a task back: at once if its node does not have it; else the node is told, undoes what was done, and says so.
    ///
    /// # Errors
    /// If there is none, or it is over.
    pub async fn cancel_task(
        &self,
        by: &Actor,
        id: &TaskId,
        cluster: Option<&ClusterId>,
    ) -> Result<TaskState, AdminError> {
        let row = self.task(id, cluster).await?;
        let mut act = Act::begin(&self.store, by, "task.cancel", target(&row)).await?;
        let state = async {
            let state = task::cancel(act.conn(), &row.cluster_id, id, &by.name, clock::now_ms()).await?;
            state.ok_or_else(|| {
                let text = format!("the task is {} already", row.state);
                AdminError::field(Code::InvalidState, "task_id", text)
            })
        };
        let state = state.await;
        let state = act
            .end(state, json!({ "hash": row.hash.to_hex(), "type": row.kind }))
            .await?;
        control::nudge(&self.home);
        Ok(state)
    }
}

fn missing(id: &TaskId) -> AdminError {
    AdminError::missing(
        "task_id",
        format!("{id} is not on record (virtengine-provider task list)"),
    )
}
