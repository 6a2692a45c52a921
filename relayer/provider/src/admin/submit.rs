//! What a submission asks the store, and what comes of the answers: the fewer ways to the store, the sooner the node has it.

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Params, TaskType};
use serde_json::value::RawValue;

use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::clock;
use crate::db::{Query, Rows};
use crate::registry;
use crate::slot::{self, Claimed};
use crate::store::{self, StoreError};
use crate::task::{self, NewTask, Submitted, TaskRow};

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

/// Its id, or one that is drawn.
pub(super) fn id_of(what: &Submission<'_>) -> Result<TaskId, AdminError> {
    match what.task_id {
        Some(id) => Ok(id.clone()),
        // 32 hex digits are an id.
        None => hex::encode(clock::random::<16>()?)
            .parse()
            .map_err(|e| AdminError::field(Code::InvalidField, "task_id", e)),
    }
}

/// What is asked first: the node's clusters, the contract and, where the cluster is named, the room there.
pub(super) fn questions<'q>(what: &Submission<'q>, id: &'q TaskId) -> Vec<Query<'q>> {
    let mut questions = vec![registry::ask_clusters(what.node_id), store::ask_bound()];
    questions.extend(what.cluster_id.map(|c| task::ask_room(c, what.node_id, id)));
    questions
}

/// Admits a task by the answers; its act puts it on record last.
pub(super) async fn admit(
    act: &mut Act,
    by: &Actor,
    what: &Submission<'_>,
    task_id: TaskId,
    told: Rows,
    scheduled: bool,
) -> Result<TaskRow, AdminError> {
    if !(1..=MAX_LIFE_SECONDS).contains(&what.expires_seconds) {
        let text = "must be 1 s to 7 days from now";
        return Err(AdminError::field(Code::InvalidField, "expires", text));
    }
    let raw: &RawValue =
        serde_json::from_str(what.params).map_err(|e| AdminError::field(Code::InvalidField, "params", e))?;
    let params = Params::parse(what.kind, raw).map_err(AdminError::Refused)?;
    let mut told = told.into_iter();
    let clusters = registry::told_clusters(&told.next().unwrap_or_default())?;
    let cluster_id = the_one(clusters, what.node_id, what.cluster_id)?;
    let Some((chain_id, contract)) = store::told_bound(&told.next().unwrap_or_default())? else {
        let text = "the store belongs to no contract; start the daemon once";
        return Err(AdminError::field(Code::InvalidState, "node_id", text));
    };
    let room = match told.next() {
        Some(rows) => rows,
        None => {
            let asked = task::ask_room(&cluster_id, what.node_id, &task_id);
            asked.fetch_all(act.conn()).await.map_err(StoreError::from)?
        }
    };
    let now = clock::now();
    let new = NewTask {
        task_id: task_id.clone(),
        cluster_id,
        node_id: what.node_id.clone(),
        kind: what.kind,
        params: raw.to_owned(),
        nonce: clock::random()?,
        submitted_by: by.name.clone(),
        scheduled,
        issued_at: now,
        expires_at: now.plus(what.expires_seconds),
    };
    let scope = (chain_id.as_str(), contract.as_str());
    let (submitted, row) = task::admit(new, task::told_room(&room)?, scope, clock::now_ms())?;
    match submitted {
        Submitted::Queued | Submitted::Held | Submitted::Known => {
            let row = row.ok_or_else(|| missing(&task_id))?;
            if submitted != Submitted::Known {
                claim_slots(act, &row, &params).await?;
                act.last(task::record(&row));
            }
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

/// Gives a task the slots that it needs.
async fn claim_slots(act: &mut Act, row: &TaskRow, params: &Params) -> Result<(), AdminError> {
    let of = (&row.cluster_id, &row.node_id);
    match slot::claim(act.conn(), of, &row.task_id, params, row.submitted_ms).await? {
        Claimed::Yes => Ok(()),
        Claimed::No(why) => Err(AdminError::field(Code::InvalidState, "params.slots", why)),
    }
}

/// The one of the node's clusters that is meant.
pub(super) fn the_one(
    mut clusters: Vec<ClusterId>,
    node: &NodeId,
    cluster: Option<&ClusterId>,
) -> Result<ClusterId, AdminError> {
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

/// As the audit log names it.
pub(super) fn target(row: &TaskRow) -> String {
    format!("task {}/{} of {}", row.cluster_id, row.task_id, row.node_id)
}

pub(super) fn missing(id: &TaskId) -> AdminError {
    AdminError::missing(
        "task_id",
        format!("{id} is not on record (virtengine-provider task list)"),
    )
}
