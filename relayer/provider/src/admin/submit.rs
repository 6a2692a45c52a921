//! What a submission asks the store, and what comes of the answers: the fewer ways to the store, the sooner the node has it.

use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{Params, TaskType};
use serde_json::value::RawValue;

use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::clock;
use crate::db::{self, Query, Rows};
use crate::gateway::{Gateway, HandOver};
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

/// What is asked first: the node's clusters, the contract and, where the cluster is named, what is asked of it.
pub(super) fn questions<'q>(what: &Submission<'q>, id: &'q TaskId) -> Vec<Query<'q>> {
    let mut questions = vec![registry::ask_clusters(what.node_id), store::ask_bound()];
    questions.extend(what.cluster_id.into_iter().flat_map(|c| of_cluster(c, what, id)));
    questions
}

/// The room there, and how its task key came to be.
fn of_cluster<'q>(cluster: &'q ClusterId, what: &Submission<'q>, id: &'q TaskId) -> [Query<'q>; 2] {
    [
        task::ask_room(cluster, what.node_id, id),
        task::ask_rotations(cluster),
    ]
}

/// A task that is admitted.
pub(super) struct Admitted {
    pub(super) row: TaskRow,
    /// Its node waits, and is given it once it is on record.
    pub(super) given: Option<HandOver>,
}

/// Admits a task by the answers; its act puts it on record last.
pub(super) async fn admit(
    act: &mut Act,
    (by, scheduled): (&Actor, bool),
    what: &Submission<'_>,
    task_id: TaskId,
    told: Rows,
    gateway: Option<Arc<Gateway>>,
) -> Result<Admitted, AdminError> {
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
    let [room, rotations] = match (told.next(), told.next()) {
        (Some(room), Some(rotations)) => [room, rotations],
        _ => {
            let asked = of_cluster(&cluster_id, what, &task_id).into();
            let told = act.conn().together(asked).await;
            told.and_then(db::each).map_err(StoreError::from)?
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
    let room = task::told_room(&room)?;
    let alone = room.is_empty();
    let (submitted, row) = task::admit(new, room, scope, clock::now_ms())?;
    match submitted {
        Submitted::Queued | Submitted::Held | Submitted::Known => {
            let mut row = row.ok_or_else(|| missing(&task_id))?;
            act.aim(target(&row));
            if submitted == Submitted::Known {
                return Ok(Admitted { row, given: None });
            }
            claim_slots(act, &row, &params).await?;
            let given = match gateway.filter(|_| alone && submitted == Submitted::Queued) {
                Some(gateway) => HandOver::of(gateway, &mut row, task::told_rotations(&rotations)?),
                None => None,
            };
            if given.is_some() && !scheduled {
                act.also(task::dispatched(&row));
            }
            act.last(task::record(&row));
            Ok(Admitted { row, given })
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
