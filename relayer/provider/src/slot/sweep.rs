use crate::db::{self, Conn};

use super::row::{list, put};
use super::settle::unheard;
use super::state::SlotState;
use crate::store::StoreError;
use crate::task::find;

/// Takes slots back from tasks that ended without the node's word.
///
/// # Errors
/// If the store fails.
pub async fn sweep(conn: &mut Conn, now_ms: u64) -> Result<(), StoreError> {
    let row = db::query(
        "SELECT count(*) AS n FROM slot s WHERE s.task_id IS NOT NULL AND NOT EXISTS
         (SELECT 1 FROM task t WHERE t.cluster_id = s.cluster_id AND t.task_id = s.task_id
          AND t.state IN ('queued', 'dispatched', 'running'))",
    )
    .fetch_one(&mut *conn)
    .await?;
    if row.try_get::<i64, _>("n")? == 0 {
        return Ok(());
    }
    for mut slot in list(conn, None, None).await? {
        let Some(id) = slot.task_id.clone() else { continue };
        let task = find(conn, Some(&slot.cluster_id), &id).await?.pop();
        // A result that came has settled the slot in the same transaction.
        let had_it = match task {
            Some(task) if !task.state.is_end() => continue,
            Some(task) => task.attempts > 0,
            None => true,
        };
        if had_it && slot.state == SlotState::Quarantined {
            continue;
        }
        unheard(&mut slot, &id, had_it);
        slot.changed_ms = now_ms;
        put(conn, &slot).await?;
    }
    Ok(())
}
