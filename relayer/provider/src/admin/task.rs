use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{TaskState, TaskType, WaitAnswer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use super::submit::{Admitted, Submission, admit, id_of, missing, questions, target, the_one};
use crate::audit::Actor;
use crate::clock;
use crate::control;
use crate::db::Conn;
use crate::gateway::HandOver;
use crate::page::{Page, Window};
use crate::registry;
use crate::store::StoreError;
use crate::task::{self, ProgressRow, TaskRow};

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

/// What the node is told, signed while the disk works.
async fn signed(given: Option<&HandOver>) -> Option<WaitAnswer> {
    given.map(HandOver::sign)
}

impl Admin {
    /// Puts a task on record; the node has it at once if it waits for one. Gives the task.
    ///
    /// # Errors
    /// If there is no such node, or the task cannot be.
    pub async fn submit_task(&self, by: &Actor, what: &Submission<'_>) -> Result<TaskRow, AdminError> {
        let (act, done, given) = self.submitting(by, what, false).await?;
        let row = done.as_ref().ok();
        let detail = json!({
            "type": what.kind, "task_id": row.map(|r| &r.task_id), "hash": row.map(|r| r.hash.to_hex()),
            "approval": row.map(|r| r.approval),
        });
        let (ended, answer) = tokio::join!(act.end(done, detail), signed(given.as_ref()));
        self.deliver(ended, given, answer).await
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
        let probe = Submission {
            task_id: None,
            node_id: node,
            cluster_id: Some(cluster),
            kind: TaskType::DiagHealthProbe,
            params: "{}",
            expires_seconds,
        };
        let (act, done, given) = self.submitting(&Actor::daemon(), &probe, true).await?;
        let (ended, answer) = tokio::join!(act.end_unrecorded(done), signed(given.as_ref()));
        self.deliver(ended, given, answer).await
    }

    /// Has the node have a task that is on record: from here, or when it asks.
    async fn deliver(
        &self,
        mut ended: Result<TaskRow, AdminError>,
        given: Option<HandOver>,
        answer: Option<WaitAnswer>,
    ) -> Result<TaskRow, AdminError> {
        match (&mut ended, given, answer) {
            (Ok(row), Some(given), Some(answer)) => {
                if given.give(answer).await {
                    row.give_back();
                }
            }
            // It may be on record all the same.
            (Err(_), Some(given), _) => drop(given.take_back().await),
            (Ok(row), ..) => control::nudge_node(&self.home, &row.cluster_id, &row.node_id),
            (Err(_), None, _) => {}
        }
        ended
    }

    /// The act of submitting, up to its end.
    async fn submitting(
        &self,
        by: &Actor,
        what: &Submission<'_>,
        scheduled: bool,
    ) -> Result<(Act, Result<TaskRow, AdminError>, Option<HandOver>), AdminError> {
        let id = id_of(what)?;
        let target = format!("node {}", what.node_id);
        let (mut act, told) =
            Act::asking(&self.store, by, "task.submit", target, questions(what, &id)).await?;
        let gateway = self.gateway.upgrade();
        Ok(
            match admit(&mut act, (by, scheduled), what, id, told, gateway).await {
                Ok(Admitted { row, given }) => (act, Ok(row), given),
                Err(e) => (act, Err(e), None),
            },
        )
    }

    /// The submission of a task within an act that does more, which puts it on record last.
    pub(super) async fn submit_in(
        &self,
        act: &mut Act,
        by: &Actor,
        what: &Submission<'_>,
    ) -> Result<TaskRow, AdminError> {
        let id = id_of(what)?;
        let told = act.conn().together(questions(what, &id)).await;
        let told = told.map_err(StoreError::from)?;
        // Its act does more, and delivers it when all of that is on record.
        let admitted = admit(act, (by, false), what, id, told, None).await?;
        Ok(admitted.row)
    }

    /// The cluster of the node that is meant, found by its id alone: there may be thousands of nodes.
    pub(super) async fn cluster_of(
        &self,
        act: &mut Act,
        node: &NodeId,
        cluster: Option<&ClusterId>,
    ) -> Result<ClusterId, AdminError> {
        the_one(registry::clusters_of(act.conn(), node).await?, node, cluster)
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
        one(&mut conn, id, cluster).await
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
        let mut act = Act::begin(&self.store, by, "task.approve", format!("task {id}")).await?;
        let approved = async {
            let row = one(act.conn(), id, cluster).await?;
            act.aim(target(&row));
            if task::approve(act.conn(), &row.cluster_id, id, &by.name).await? {
                return Ok(row);
            }
            let text = format!("does not wait for approval; it is {}", row.state);
            Err(AdminError::field(Code::InvalidState, "task_id", text))
        };
        let approved = approved.await;
        let detail = particulars(approved.as_ref().ok());
        let row = act.end(approved, detail).await?;
        control::nudge_node(&self.home, &row.cluster_id, &row.node_id);
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
        let mut act = Act::begin(&self.store, by, "task.cancel", format!("task {id}")).await?;
        let cancelled = async {
            let row = one(act.conn(), id, cluster).await?;
            act.aim(target(&row));
            let state = task::cancel(act.conn(), &row.cluster_id, id, &by.name, clock::now_ms()).await?;
            if let Some(state) = state {
                return Ok((row, state));
            }
            let text = format!("the task is {} already", row.state);
            Err(AdminError::field(Code::InvalidState, "task_id", text))
        };
        let cancelled = cancelled.await;
        let detail = particulars(cancelled.as_ref().ok().map(|(row, _)| row));
        let (row, state) = act.end(cancelled, detail).await?;
        control::nudge_node(&self.home, &row.cluster_id, &row.node_id);
        Ok(state)
    }
}

/// The one task of this id.
async fn one(conn: &mut Conn, id: &TaskId, cluster: Option<&ClusterId>) -> Result<TaskRow, AdminError> {
    let mut found = task::find(conn, cluster, id).await?;
    if found.len() > 1 {
        let text = "is a task of several clusters; name one with --cluster-id";
        return Err(AdminError::field(Code::UnknownTask, "task_id", text));
    }
    found.pop().ok_or_else(|| missing(id))
}

/// What the audit log says of a task that somebody decides about.
fn particulars(row: Option<&TaskRow>) -> Value {
    json!({ "hash": row.map(|r| r.hash.to_hex()), "type": row.map(|r| r.kind) })
}
