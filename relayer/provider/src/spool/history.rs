use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::Member;
use crate::db::{self, Conn, Pool, Row};
use crate::prove;
use crate::store::{StoreError, int, opt_uint, sequence, uint};

/// How a report ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedAs {
    /// It counts on chain.
    OnChain,
    /// The chain, or the gateway before sending it, refused it.
    Refused,
    /// A report of a newer registration replaced it.
    Superseded,
}

impl EndedAs {
    fn word(self) -> &'static str {
        match self {
            Self::OnChain => "on_chain",
            Self::Refused => "refused",
            Self::Superseded => "superseded",
        }
    }
}

/// How, why and where a report ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// How.
    pub ended: EndedAs,
    /// Refusal or notice.
    pub code: Option<Code>,
    /// The transaction.
    pub batch: Option<u64>,
    /// The block.
    pub height: Option<u64>,
}

impl End {
    /// Ended without a transaction.
    #[must_use]
    pub fn local(ended: EndedAs, code: Option<Code>) -> Self {
        Self {
            ended,
            code,
            batch: None,
            height: None,
        }
    }
}

/// Records how a report ended, and on the node's record what it was refused with.
///
/// # Errors
/// If the store fails.
pub async fn end(conn: &mut Conn, m: &Member, end: &End, now_ms: u64) -> Result<(), StoreError> {
    if m.recorded {
        return Ok(());
    }
    db::query(
        "INSERT INTO report_end (cluster_id, node_id, epoch, sequence, superseded_from, superseded_count, ended,
         code, batch_id, height, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(m.cluster_id.as_str())
    .bind(m.node_id.as_str())
    .bind(int(m.epoch))
    .bind(i64::from(m.sequence))
    .bind(m.superseded_from.map(i64::from))
    .bind(int(m.superseded_count))
    .bind(end.ended.word())
    .bind(end.code.map(|c| i64::from(c.number())))
    .bind(end.batch.map(int))
    .bind(end.height.map(int))
    .bind(int(now_ms))
    .execute(&mut *conn)
    .await?;
    match (end.ended, end.batch, end.height) {
        (EndedAs::OnChain, Some(batch), Some(_)) => prove::on_chain(&mut *conn, m.which(), batch).await?,
        _ => prove::forget(&mut *conn, m.which()).await?,
    }
    if let (EndedAs::Refused, Some(code)) = (end.ended, end.code) {
        db::query(
            "UPDATE intake SET refusal_code = ?, refusal_sequence = ?, refusal_at = ?
             WHERE cluster_id = ? AND node_id = ?",
        )
        .bind(i64::from(code.number()))
        .bind(i64::from(m.sequence))
        .bind(int(now_ms))
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// Records that every report that is still bound to this transaction came on chain with it, without a notice: the usual end, in
/// few statements, whatever their number.
///
/// # Errors
/// If the store fails.
pub async fn end_bound_on_chain(
    conn: &mut Conn,
    batch: u64,
    height: u64,
    now_ms: u64,
) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO report_end (cluster_id, node_id, epoch, sequence, superseded_from, superseded_count, ended,
         batch_id, height, ended_at)
         SELECT cluster_id, node_id, epoch, sequence, superseded_from, superseded_count, ?1, batch_id, ?2, ?3
         FROM batch_report WHERE batch_id = ?4 AND recorded = 0 ORDER BY item",
    )
    .bind(EndedAs::OnChain.word())
    .bind(int(height))
    .bind(int(now_ms))
    .bind(int(batch))
    .execute(&mut *conn)
    .await?;
    prove::bound_on_chain(conn, batch).await
}

/// One record of the history, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndRow {
    /// Epoch.
    pub epoch: u64,
    /// Sequence.
    pub sequence: u32,
    /// First sequence of the accepted reports that it replaced.
    pub superseded_from: Option<u64>,
    /// How many those are.
    pub superseded_count: u64,
    /// `on_chain`, `refused`, `superseded`.
    pub ended: String,
    /// Refusal or notice.
    pub code: Option<Code>,
    /// Hash of the transaction.
    pub tx: Option<String>,
    /// The block.
    pub height: Option<u64>,
    /// UNIX milliseconds.
    pub ended_at: u64,
}

/// The newest ends of a node's reports, newest first.
///
/// # Errors
/// If the store fails.
pub async fn ends_of(
    pool: &Pool,
    cluster: &ClusterId,
    node: &NodeId,
    limit: u32,
) -> Result<Vec<EndRow>, StoreError> {
    let rows = db::query(
        "SELECT e.*, b.hash FROM report_end e LEFT JOIN batch b ON b.id = e.batch_id
         WHERE e.cluster_id = ? AND e.node_id = ? ORDER BY e.id DESC LIMIT ?",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(EndRow {
                epoch: uint(row, "epoch")?,
                sequence: sequence(row, "sequence")?,
                superseded_from: opt_uint(row, "superseded_from")?,
                superseded_count: uint(row, "superseded_count")?,
                ended: row.try_get("ended")?,
                code: code(row, "code")?,
                tx: row.try_get("hash")?,
                height: opt_uint(row, "height")?,
                ended_at: uint(row, "ended_at")?,
            })
        })
        .collect()
}

fn code(row: &Row, column: &'static str) -> Result<Option<Code>, StoreError> {
    Ok(opt_uint(row, column)?
        .and_then(|n| u8::try_from(n).ok())
        .and_then(Code::from_number))
}

/// What a node's report was refused with, the newest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// Of which report.
    pub sequence: u32,
    /// UNIX milliseconds.
    pub at: u64,
}

/// What a node's report was last refused with after it had been accepted.
///
/// # Errors
/// If the store fails.
pub async fn last_refusal(
    pool: &Pool,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Option<Refusal>, StoreError> {
    let row = db::query(
        "SELECT refusal_code, refusal_sequence, refusal_at FROM intake
         WHERE cluster_id = ? AND node_id = ? AND refusal_code IS NOT NULL",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let Some(code) = code(&row, "refusal_code")? else {
        return Ok(None);
    };
    Ok(Some(Refusal {
        code,
        sequence: sequence(&row, "refusal_sequence")?,
        at: uint(&row, "refusal_at")?,
    }))
}

/// Forgets ends that are older than `before_ms`, a bounded number at a time.
///
/// # Errors
/// If the store fails.
pub async fn prune(conn: &mut Conn, before_ms: u64) -> Result<u64, StoreError> {
    let done = db::query(
        "DELETE FROM report_end WHERE id IN (SELECT id FROM report_end WHERE ended_at < ? LIMIT 10000)",
    )
    .bind(int(before_ms))
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
