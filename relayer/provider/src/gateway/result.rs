//! Results of tasks.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::refusal::Refusal;
use hpc_schema::task::{MAX_TASK_RESULT_BYTES, RESULT_ACTION, ResultDigests, TaskResult, audit_target};

use super::answer::Failure;
use super::certificate::not_disabled;
use super::connection::Connection;
use super::path::PathIds;
use super::tasks::{refused, task_id};
use super::{Gateway, body};
use crate::audit;
use crate::db::Conn;
use crate::store::StoreError;
use crate::task::{self, Taken, TaskRow};
use crate::{clock, db, slot};

/// What stands around a result.
const AROUND: usize = 8 * 1024;

/// `POST …/{node_id}/tasks/{task_id}/result`: durable when it is answered.
pub(super) async fn result(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    PathIds((path_node, path_task)): PathIds<(String, String)>,
    request: Request,
) -> Result<StatusCode, Failure> {
    let within = gateway.live.get().gateway.request_timeout.duration();
    let bytes = body::read(request, MAX_TASK_RESULT_BYTES + AROUND, within).await?;
    let peer = connection.node(&gateway, &path_node, clock::now())?;
    let id = task_id(&path_task)?;
    let result: TaskResult = body::json(&bytes)?;
    let (cluster, node) = (&peer.cluster_id, &peer.node_id);
    not_disabled(&gateway, cluster, node)?;
    // Before it is looked for: it may be read meanwhile.
    let unread = gateway.registry.is_unread(cluster);
    let known = gateway.registry.node(cluster, node);
    let Some(known) = known else {
        let refusal = Refusal::whole(Code::UnknownNode, "the node is not registered");
        return Err(Failure::unregistered(refusal, unread));
    };
    let questions = vec![task::ask_task((cluster, node), &id), audit::ask_head()];
    let (mut tx, told) = gateway.store.begin_together(questions).await?;
    let [row, head] = db::each(told).map_err(StoreError::from)?;
    let row = task::told_task(&row)?;
    let taken = task::judge(row.as_ref(), &result, known.key(), clock::now());
    match (&taken, &row) {
        (Taken::Recorded, Some(row)) => {
            let entries = entries(&mut tx, (cluster, node), row, &result).await?;
            let mut last = vec![task::ended(row, &result, known.key(), clock::now_ms())?];
            last.extend(audit::after(audit::told_head(&head)?, &entries));
            tx.commit_together(last).await.map_err(StoreError::from)?;
        }
        (Taken::Unusable(refusal), Some(row)) => {
            let last = vec![task::ended_unknown(row, refusal, clock::now_ms())];
            tx.commit_together(last).await.map_err(StoreError::from)?;
        }
        _ => tx.rollback().await.map_err(StoreError::from)?,
    }
    match taken {
        Taken::Recorded => {
            let outcome = result.outcome.as_str();
            tracing::info!(%cluster, %node, task = %id, outcome, code = result.code, "task ended");
            gateway.waiting.tell(cluster, &id);
            // Another one may have its turn now.
            gateway.waiting.wake(cluster, node);
            Ok(StatusCode::OK)
        }
        Taken::Known => Ok(StatusCode::OK),
        Taken::Unusable(refusal) => {
            tracing::warn!(%cluster, %node, task = %id, "how a task ended is unknown, its result is refused: {refusal}");
            gateway.waiting.tell(cluster, &id);
            gateway.waiting.wake(cluster, node);
            Err(refused(refusal))
        }
        Taken::Refused(refusal) => {
            tracing::warn!(%cluster, %node, task = %id, "a result is refused: {refusal}");
            Err(refused(refusal))
        }
    }
}

/// Puts slots where the result says that they are, on record with the result itself; what the audit log says of both.
async fn entries(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    row: &TaskRow,
    result: &TaskResult,
) -> Result<Vec<audit::Entry>, StoreError> {
    let digests = ResultDigests::of(result);
    let detail = serde_json::json!({
        "outcome": result.outcome, "code": result.code, "hash": digests.hash,
        "result_sha256": digests.result_sha256, "cleanup_sha256": digests.cleanup_sha256,
        "signature": result.signature,
    });
    let said = if result.code.is_none() { "done" } else { "failed" };
    let target = audit_target(cluster, node, &row.task_id);
    let mut entries = vec![audit::Entry::of_daemon(RESULT_ACTION, target, said, detail)];
    for slot in slot::settle(conn, row, result, clock::now_ms()).await? {
        let target = format!("slot {}/{}", slot.node_id, slot.slot_id());
        let detail = serde_json::json!({
            "state": slot.state, "task": row.task_id, "hash": result.task_hash, "note": slot.note,
        });
        entries.push(audit::Entry::of_daemon("slot.settle", target, "done", detail));
    }
    Ok(entries)
}
