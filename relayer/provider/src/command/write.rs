use hpc_schema::command::{
    Acknowledgement, CommandType, MAX_ACKNOWLEDGEMENT_DETAIL, MAX_ACKNOWLEDGEMENT_REPORT,
};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;

use super::row::{BY_CHAIN, CommandState, NewCommand};
use crate::control;
use crate::db::{self, Conn};
use crate::store::{StoreError, int};

/// Orders that one node may have waiting, beside the chain's.
const MAX_PENDING: i64 = 16;
/// Each of these takes back what waits of them.
const CONTRARY: [CommandType; 2] = [CommandType::Drain, CommandType::Resume];

/// Puts an order on record; false, with nothing changed, if the node has too many waiting. An order of the same id is left as
/// it is, but for a later deadline. A drain takes back a waiting resume, and the other way round.
///
/// # Errors
/// If the store fails.
pub async fn submit(conn: &mut Conn, new: &NewCommand) -> Result<bool, StoreError> {
    if waiting(conn, new).await? >= MAX_PENDING {
        return Ok(false);
    }
    put(conn, new).await?;
    Ok(true)
}

/// The orders that would wait beside this one, but the chain's.
async fn waiting(conn: &mut Conn, new: &NewCommand) -> Result<i64, StoreError> {
    // By kind as well: an operator may have the chain's name, but gives neither of these.
    let mut sql = "SELECT count(*) AS n FROM command
         WHERE cluster_id = ? AND node_id = ? AND state = 'pending' AND command_id <> ?
         AND NOT (issued_by = ? AND kind IN (?, ?))"
        .to_owned();
    let taken_back: &[CommandType] = if CONTRARY.contains(&new.kind) {
        sql.push_str(" AND kind NOT IN (?, ?)");
        &CONTRARY
    } else {
        &[]
    };
    let mut query = db::query(sql)
        .bind(new.cluster_id.as_str())
        .bind(new.node_id.as_str())
        .bind(&new.command_id)
        .bind(BY_CHAIN);
    for kind in CONTRARY.iter().chain(taken_back) {
        query = query.bind(kind.as_str());
    }
    Ok(query.fetch_one(conn).await?.try_get("n")?)
}

/// The same however many wait: what the chain has decided is not lost. Of its orders one waits at most.
pub(super) async fn put(conn: &mut Conn, new: &NewCommand) -> Result<(), StoreError> {
    let (cluster, node) = (new.cluster_id.as_str(), new.node_id.as_str());
    if CONTRARY.contains(&new.kind) {
        let [a, b] = CONTRARY;
        db::query(
            "UPDATE command SET state = 'cancelled', detail = 'replaced by a later order'
             WHERE cluster_id = ? AND node_id = ? AND kind IN (?, ?) AND state = 'pending' AND command_id <> ?",
        )
        .bind(cluster)
        .bind(node)
        .bind(a.as_str())
        .bind(b.as_str())
        .bind(&new.command_id)
        .execute(&mut *conn)
        .await?;
    }
    db::query(
        "INSERT INTO command (command_id, cluster_id, node_id, kind, parameters, nonce, issued_by, issued_at_s,
         deadline_s, state, place)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', (SELECT coalesce(max(place), 0) + 1 FROM command))
         ON CONFLICT (command_id) DO UPDATE SET
           deadline_s = CASE WHEN excluded.deadline_s > command.deadline_s THEN excluded.deadline_s ELSE command.deadline_s END
         WHERE command.state = 'pending'",
    )
    .bind(&new.command_id)
    .bind(cluster)
    .bind(node)
    .bind(new.kind.as_str())
    .bind(&new.parameters)
    .bind(new.nonce.as_slice())
    .bind(&new.issued_by)
    .bind(int(new.issued_at.0))
    .bind(int(new.deadline.0))
    .execute(&mut *conn)
    .await?;
    control::touch(conn).await?;
    Ok(())
}

/// Notes that a node has been told an order for the first time.
///
/// # Errors
/// If the store fails.
pub async fn told(conn: &mut Conn, id: &str, now: UnixSeconds) -> Result<(), StoreError> {
    let done = db::query("UPDATE command SET told_at_s = ? WHERE command_id = ? AND told_at_s IS NULL")
        .bind(int(now.0))
        .bind(id)
        .execute(&mut *conn)
        .await?;
    if done.rows_affected() > 0 {
        control::touch(conn).await?;
    }
    Ok(())
}

/// Takes a node's acknowledgement of an order that is its own; whether there was one that has no outcome yet. One that was
/// taken back after the node had been told is what the node says that became of it.
///
/// # Errors
/// If the store fails.
pub async fn acknowledge(
    conn: &mut Conn,
    cluster: &ClusterId,
    node: &NodeId,
    ack: &Acknowledgement,
    now: UnixSeconds,
) -> Result<bool, StoreError> {
    let printable = |text: &str| -> String {
        let mut out: String = text.chars().filter(|c| !c.is_control()).collect();
        while out.len() > MAX_ACKNOWLEDGEMENT_DETAIL {
            out.pop();
        }
        out
    };
    // A node's word: kept if it is what it should be.
    let is_object = |text: &&str| {
        text.len() <= MAX_ACKNOWLEDGEMENT_REPORT
            && serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
    };
    let done = db::query(
        "UPDATE command SET state = ?, acknowledged_at_s = ?, code = ?, detail = ?, report = ?
         WHERE command_id = ? AND cluster_id = ? AND node_id = ?
         AND state IN ('pending', 'accepted', 'expired', 'cancelled')",
    )
    .bind(CommandState::from(ack.status).as_str())
    .bind(int(now.0))
    .bind(ack.code().map(hpc_schema::code::Code::as_str))
    .bind(ack.detail.as_deref().map(printable))
    .bind(ack.report.as_deref().filter(is_object))
    .bind(&ack.command_id)
    .bind(cluster.as_str())
    .bind(node.as_str())
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() > 0 {
        control::touch(conn).await?;
    }
    Ok(done.rows_affected() > 0)
}

/// Takes back an order that has not been acknowledged; whether there was one.
///
/// # Errors
/// If the store fails.
pub async fn cancel(conn: &mut Conn, id: &str) -> Result<bool, StoreError> {
    let done = db::query(
        "UPDATE command SET state = 'cancelled', detail = 'taken back' WHERE command_id = ? AND state = 'pending'",
    )
    .bind(id)
    .execute(&mut *conn)
    .await?;
    control::touch(conn).await?;
    Ok(done.rows_affected() > 0)
}

/// Ends the orders whose deadline is over; how many.
///
/// # Errors
/// If the store fails.
pub async fn expire(conn: &mut Conn, now: UnixSeconds) -> Result<u64, StoreError> {
    let done = db::query("UPDATE command SET state = 'expired' WHERE state = 'pending' AND deadline_s < ?")
        .bind(int(now.0))
        .execute(&mut *conn)
        .await?;
    if done.rows_affected() > 0 {
        control::touch(conn).await?;
    }
    Ok(done.rows_affected())
}

/// Forgets ended orders that were given before `before`.
///
/// # Errors
/// If the store fails.
pub async fn prune(conn: &mut Conn, before: UnixSeconds) -> Result<(), StoreError> {
    db::query("DELETE FROM command WHERE issued_at_s < ? AND deadline_s < ? AND state <> 'pending'")
        .bind(int(before.0))
        .bind(int(before.0))
        .execute(conn)
        .await?;
    Ok(())
}
