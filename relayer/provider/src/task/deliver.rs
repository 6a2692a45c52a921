use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::task::{
    Cancellation, Delivered, KeyRotation, Task, TaskScope, WaitAnswer, audit_target, cancel_message,
    task_message,
};
use serde_json::json;

use super::claim::Claimed;
use super::row::TaskRow;
use super::submit::unsigned;
use crate::audit::Entry;
use crate::identity::Seed;

/// What a node is told: each task and each cancellation signed by the cluster's task key.
#[must_use]
pub fn answer(
    claimed: &Claimed,
    task_keys: Vec<KeyRotation>,
    scope: (&str, &str),
    key: &Seed,
    lease_seconds: u32,
) -> WaitAnswer {
    let delivered = |row: &TaskRow| {
        Some(Delivered {
            task: signed(row, scope, key)?,
            lease_seconds,
            attempt: u32::try_from(row.attempts).unwrap_or(u32::MAX),
        })
    };
    WaitAnswer {
        tasks: claimed.tasks.iter().filter_map(delivered).collect(),
        cancel: claimed
            .cancel
            .iter()
            .map(|row| signed_cancellation(row, scope, key))
            .collect(),
        task_keys,
    }
}

/// What the audit log says of a task that is its node's now.
#[must_use]
pub fn dispatched(row: &TaskRow) -> Entry {
    let detail = json!({ "type": row.kind, "hash": row.hash.to_hex(), "attempt": row.attempts });
    let target = audit_target(&row.cluster_id, &row.node_id, &row.task_id);
    Entry::of_daemon("task.dispatch", target, "done", detail)
}

fn scope_of<'a>(row: &'a TaskRow, (chain_id, contract): (&'a str, &'a str)) -> TaskScope<'a> {
    TaskScope {
        chain_id,
        contract,
        cluster_id: &row.cluster_id,
        node_id: &row.node_id,
    }
}

fn signed(row: &TaskRow, scope: (&str, &str), key: &Seed) -> Option<Task> {
    let times = (row.issued_at, row.expires_at);
    let mut task = unsigned(&row.task_id, row.kind, &row.params, &row.nonce, times)?;
    let message = task_message(&scope_of(row, scope), &task, &row.nonce);
    task.signature = STANDARD.encode(key.sign(&message));
    Some(task)
}

/// The word that takes a task back.
#[must_use]
pub fn signed_cancellation(row: &TaskRow, scope: (&str, &str), key: &Seed) -> Cancellation {
    let message = cancel_message(&scope_of(row, scope), &row.task_id, row.hash);
    Cancellation {
        task_id: row.task_id.clone(),
        task_hash: row.hash.to_hex(),
        signature: STANDARD.encode(key.sign(&message)),
    }
}
