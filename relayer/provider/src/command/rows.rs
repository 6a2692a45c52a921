use hpc_schema::command::{Acknowledgement, AcknowledgementStatus, CommandType, MAX_ACKNOWLEDGEMENT_DETAIL};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection, SqlitePool};

use crate::control;
use crate::store::{StoreError, bytes, int, opt_uint, text, uint};

/// Orders that one node may have waiting.
const MAX_PENDING: i64 = 16;
/// Orders kept in memory at most, over all nodes.
const MAX_LOADED: i64 = 100_000;

/// How an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandState {
    /// Not acknowledged.
    Pending,
    /// The node has taken it and is at it.
    Accepted,
    /// Carried out.
    Done,
    /// Begun and not carried out.
    Failed,
    /// The node refuses it.
    Refused,
    /// Its deadline passed without an acknowledgement.
    Expired,
    /// Taken back, or replaced by a contrary order.
    Cancelled,
}

impl CommandState {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Accepted,
        Self::Done,
        Self::Failed,
        Self::Refused,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The word in the store and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<AcknowledgementStatus> for CommandState {
    fn from(status: AcknowledgementStatus) -> Self {
        match status {
            AcknowledgementStatus::Accepted => Self::Accepted,
            AcknowledgementStatus::Done => Self::Done,
            AcknowledgementStatus::Failed => Self::Failed,
            AcknowledgementStatus::Refused => Self::Refused,
        }
    }
}

/// A new order.
#[derive(Debug, Clone)]
pub struct NewCommand {
    /// Unique.
    pub command_id: String,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// What is to be done.
    pub kind: CommandType,
    /// JSON object, checked.
    pub parameters: String,
    /// Random.
    pub nonce: [u8; 16],
    /// Who ordered it.
    pub issued_by: String,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub deadline: UnixSeconds,
}

/// An order on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandRow {
    /// Unique.
    pub command_id: String,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// What is to be done.
    #[serde(rename = "type")]
    pub kind: CommandType,
    /// JSON object.
    pub parameters: String,
    #[serde(skip)]
    pub(super) nonce: [u8; 16],
    /// Who ordered it: a name, or `chain`.
    pub issued_by: String,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub deadline: UnixSeconds,
    /// How it stands.
    pub state: CommandState,
    /// When the node was first told.
    pub told_at: Option<UnixSeconds>,
    /// When it last acknowledged.
    pub acknowledged_at: Option<UnixSeconds>,
    /// Code of a refusal or failure.
    pub code: Option<String>,
    /// The node's words.
    pub detail: Option<String>,
}

impl CommandRow {
    fn read(row: &SqliteRow) -> Result<Self, StoreError> {
        let bad = |column| StoreError::Value {
            table: "command",
            column,
        };
        let kind: String = row.try_get("kind")?;
        let state: String = row.try_get("state")?;
        Ok(Self {
            command_id: row.try_get("command_id")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            kind: kind.parse().map_err(|_| bad("kind"))?,
            parameters: row.try_get("parameters")?,
            nonce: bytes(row, "nonce")?,
            issued_by: row.try_get("issued_by")?,
            issued_at: UnixSeconds(uint(row, "issued_at_s")?),
            deadline: UnixSeconds(uint(row, "deadline_s")?),
            state: CommandState::ALL
                .into_iter()
                .find(|s| s.as_str() == state)
                .ok_or(bad("state"))?,
            told_at: opt_uint(row, "told_at_s")?.map(UnixSeconds),
            acknowledged_at: opt_uint(row, "acknowledged_at_s")?.map(UnixSeconds),
            code: row.try_get("code")?,
            detail: row.try_get("detail")?,
        })
    }
}

/// Puts an order on record; false if the node has too many waiting. An order of the same id is left as it is, but
/// for a later deadline. A drain takes back a waiting resume, and the other way round.
///
/// # Errors
/// If the store fails.
pub async fn submit(conn: &mut SqliteConnection, new: &NewCommand) -> Result<bool, StoreError> {
    let (cluster, node) = (new.cluster_id.as_str(), new.node_id.as_str());
    let contrary = match new.kind {
        CommandType::Drain | CommandType::Resume => Some((CommandType::Drain, CommandType::Resume)),
        _ => None,
    };
    if let Some((a, b)) = contrary {
        sqlx::query(
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
    let row = sqlx::query(
        "SELECT count(*) AS n FROM command WHERE cluster_id = ? AND node_id = ? AND state = 'pending' AND command_id <> ?",
    )
    .bind(cluster)
    .bind(node)
    .bind(&new.command_id)
    .fetch_one(&mut *conn)
    .await?;
    if row.try_get::<i64, _>("n")? >= MAX_PENDING {
        return Ok(false);
    }
    sqlx::query(
        "INSERT INTO command (command_id, cluster_id, node_id, kind, parameters, nonce, issued_by, issued_at_s,
         deadline_s, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending')
         ON CONFLICT (command_id) DO UPDATE SET deadline_s = max(deadline_s, excluded.deadline_s)
         WHERE state = 'pending'",
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
    Ok(true)
}

/// Notes that a node has been told an order for the first time.
///
/// # Errors
/// If the store fails.
pub async fn told(conn: &mut SqliteConnection, id: &str, now: UnixSeconds) -> Result<(), StoreError> {
    let done = sqlx::query("UPDATE command SET told_at_s = ? WHERE command_id = ? AND told_at_s IS NULL")
        .bind(int(now.0))
        .bind(id)
        .execute(&mut *conn)
        .await?;
    if done.rows_affected() > 0 {
        control::touch(conn).await?;
    }
    Ok(())
}

/// Takes a node's acknowledgement of an order that is its own; whether there was one that still waits for it.
///
/// # Errors
/// If the store fails.
pub async fn acknowledge(
    conn: &mut SqliteConnection,
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
    let done = sqlx::query(
        "UPDATE command SET state = ?, acknowledged_at_s = ?, code = ?, detail = ?
         WHERE command_id = ? AND cluster_id = ? AND node_id = ? AND state IN ('pending', 'accepted', 'expired')",
    )
    .bind(CommandState::from(ack.status).as_str())
    .bind(int(now.0))
    .bind(ack.code().map(hpc_schema::code::Code::as_str))
    .bind(ack.detail.as_deref().map(printable))
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
pub async fn cancel(conn: &mut SqliteConnection, id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query(
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
pub async fn expire(conn: &mut SqliteConnection, now: UnixSeconds) -> Result<u64, StoreError> {
    let done = sqlx::query("UPDATE command SET state = 'expired' WHERE state = 'pending' AND deadline_s < ?")
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
pub async fn prune(conn: &mut SqliteConnection, before: UnixSeconds) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM command WHERE issued_at_s < ? AND deadline_s < ? AND state <> 'pending'")
        .bind(int(before.0))
        .bind(int(before.0))
        .execute(conn)
        .await?;
    Ok(())
}

/// Every order that waits, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn pending(pool: &SqlitePool) -> Result<Vec<CommandRow>, StoreError> {
    let rows =
        sqlx::query("SELECT * FROM command WHERE state = 'pending' ORDER BY issued_at_s, command_id LIMIT ?")
            .bind(MAX_LOADED)
            .fetch_all(pool)
            .await?;
    rows.iter().map(CommandRow::read).collect()
}

/// The orders of a node, or of all, newest first.
///
/// # Errors
/// If the store fails.
pub async fn history(
    pool: &SqlitePool,
    of: Option<(&ClusterId, &NodeId)>,
    limit: u32,
) -> Result<Vec<CommandRow>, StoreError> {
    let (cluster, node) = of.map_or((None, None), |(c, n)| (Some(c.as_str()), Some(n.as_str())));
    let rows = sqlx::query(
        "SELECT * FROM command WHERE (?1 IS NULL OR cluster_id = ?1) AND (?2 IS NULL OR node_id = ?2)
         ORDER BY issued_at_s DESC, command_id LIMIT ?3",
    )
    .bind(cluster)
    .bind(node)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter().map(CommandRow::read).collect()
}

/// One order.
///
/// # Errors
/// If the store fails.
pub async fn find(pool: &SqlitePool, id: &str) -> Result<Option<CommandRow>, StoreError> {
    let row = sqlx::query("SELECT * FROM command WHERE command_id = ?")
        .bind(id)
        .fetch_optional(pool)
        .await?;
    row.as_ref().map(CommandRow::read).transpose()
}
