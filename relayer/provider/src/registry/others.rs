//! What other gateways on the same store have read from the chain, settled or accepted.

use hpc_schema::time::UnixSeconds;

use super::store::{COLUMNS, TABLES, read};
use super::view::Registry;
use crate::db;
use crate::spool;
use crate::store::{Store, StoreError};

/// Nodes taken in at once.
const AT_ONCE: i64 = 10_000;

/// How far this gateway has followed the others.
#[derive(Debug, Default)]
pub struct Mark(i64);

/// Takes in what has changed since the last call; nothing where the store is this gateway's alone.
///
/// # Errors
/// If the store fails; the next call goes on from where this one stopped.
pub async fn catch_up(
    store: &Store,
    registry: &Registry,
    mark: &mut Mark,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    if !store.is_shared() {
        return Ok(());
    }
    let from = mark.0;
    let nodes = db::query(format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE n.changed > ? ORDER BY n.changed LIMIT ?"
    ))
    .bind(from)
    .bind(AT_ONCE)
    .fetch_all(store.reader())
    .await?;
    let mut reached = from;
    for row in &nodes {
        let node = read(row)?;
        let unknown = registry.node(&node.cluster_id, &node.node_id).is_none();
        registry.set_node(&node.cluster_id, node.chain, node.height, now);
        if unknown {
            registry.set_contact(&node.cluster_id, &node.node_id, node.contact);
        } else {
            // It may have registered anew there.
            registry.take_probe(&node.cluster_id, &node.node_id, &node.contact);
        }
        reached = reached.max(row.try_get("changed")?);
    }
    // The numbers are of one sequence: with nodes left over, refusals wait for them.
    let most = if nodes.len() < usize::try_from(AT_ONCE).unwrap_or(usize::MAX) {
        i64::MAX
    } else {
        reached
    };
    let refused = db::query("SELECT * FROM intake WHERE changed > ? AND changed <= ? ORDER BY changed")
        .bind(from)
        .bind(most)
        .fetch_all(store.reader())
        .await?;
    for row in &refused {
        reached = reached.max(row.try_get("changed")?);
        match spool::Intake::read(row) {
            Ok(intake) => {
                if let Some((code, sequence)) = intake.refusal {
                    registry.refused(&intake.cluster_id, &intake.node_id, code, sequence);
                }
            }
            // It keeps nobody from settling; the node's next report has it written anew.
            Err(e) if e.is_unreadable() => {}
            Err(e) => return Err(e),
        }
    }
    mark.0 = reached;
    Ok(())
}

/// Takes in of which nodes other gateways have accepted heartbeats; nothing where the store is this gateway's alone.
///
/// # Errors
/// If the store fails.
pub async fn heard_elsewhere(store: &Store, registry: &Registry) -> Result<(), StoreError> {
    if !store.is_shared() {
        return Ok(());
    }
    for intake in spool::intakes(store.reader()).await? {
        registry.set_intake(&intake);
    }
    Ok(())
}
