use hpc_chain::hash::TxHash;
use hpc_chain::proof::{Agent, Evidence, FORMAT, Proof, VERSION};
use hpc_schema::id::{ClusterId, NodeId};

use super::full;
use crate::db::{self, Conn, Pool, Row};
use crate::store::{StoreError, int, opt_uint, text, uint};

/// Heartbeats of a transaction among which one is looked for that can be read.
const MOST_SAMPLES: i64 = 1024;

fn bad(column: &'static str) -> StoreError {
    StoreError::Value {
        table: "heartbeat",
        column,
    }
}

/// Which heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Which<'a> {
    /// Cluster.
    pub cluster: &'a ClusterId,
    /// Node.
    pub node: &'a NodeId,
    /// Epoch.
    pub epoch: u64,
    /// Sequence.
    pub sequence: u32,
}

/// Keeps a heartbeat whose report is on its way; `full` is of [`fn@super::full`].
///
/// # Errors
/// If the store fails.
pub async fn keep(
    conn: &mut Conn,
    which: Which<'_>,
    full: &[u8],
    received_at: u64,
) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO heartbeat (cluster_id, node_id, epoch, sequence, heartbeat, received_at)
         VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id, epoch, sequence) DO UPDATE SET heartbeat = excluded.heartbeat,
           received_at = excluded.received_at, tx = NULL",
    )
    .bind(which.cluster.as_str())
    .bind(which.node.as_str())
    .bind(int(which.epoch))
    .bind(i64::from(which.sequence))
    .bind(full)
    .bind(int(received_at))
    .execute(conn)
    .await?;
    Ok(())
}

/// Its report does not come on chain: nothing can be proven of it.
///
/// # Errors
/// If the store fails.
pub async fn forget(conn: &mut Conn, which: Which<'_>) -> Result<(), StoreError> {
    db::query("DELETE FROM heartbeat WHERE cluster_id = ? AND node_id = ? AND epoch = ? AND sequence = ?")
        .bind(which.cluster.as_str())
        .bind(which.node.as_str())
        .bind(int(which.epoch))
        .bind(i64::from(which.sequence))
        .execute(conn)
        .await?;
    Ok(())
}

/// A transaction brought its report on chain: its evidence is to be gathered.
///
/// # Errors
/// If the store fails.
pub async fn on_chain(conn: &mut Conn, which: Which<'_>, batch: u64) -> Result<(), StoreError> {
    let kept = db::query(
        "UPDATE heartbeat SET tx = (SELECT hash FROM batch WHERE id = ?)
         WHERE cluster_id = ? AND node_id = ? AND epoch = ? AND sequence = ?",
    )
    .bind(int(batch))
    .bind(which.cluster.as_str())
    .bind(which.node.as_str())
    .bind(int(which.epoch))
    .bind(i64::from(which.sequence))
    .execute(&mut *conn)
    .await?;
    if kept.rows_affected() > 0 {
        ask_for_evidence(conn, batch).await?;
    }
    Ok(())
}

/// The same of every report that is bound to the transaction.
///
/// # Errors
/// If the store fails.
pub async fn bound_on_chain(conn: &mut Conn, batch: u64) -> Result<(), StoreError> {
    let kept = db::query(
        "UPDATE heartbeat SET tx = (SELECT hash FROM batch WHERE id = ?1) FROM batch_report b
         WHERE b.batch_id = ?1 AND b.recorded = 0 AND heartbeat.cluster_id = b.cluster_id
           AND heartbeat.node_id = b.node_id AND heartbeat.epoch = b.epoch AND heartbeat.sequence = b.sequence",
    )
    .bind(int(batch))
    .execute(&mut *conn)
    .await?;
    if kept.rows_affected() > 0 {
        ask_for_evidence(conn, batch).await?;
    }
    Ok(())
}

async fn ask_for_evidence(conn: &mut Conn, batch: u64) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO evidence (tx, asked_at) SELECT hash, 0 FROM batch WHERE id = ? AND hash IS NOT NULL
         ON CONFLICT (tx) DO NOTHING",
    )
    .bind(int(batch))
    .execute(conn)
    .await?;
    Ok(())
}

/// Transactions of which the evidence is still to be gathered and was not asked for since `before_ms`, the longest not asked
/// for first.
pub(super) async fn open(pool: &Pool, before_ms: u64, limit: u32) -> Result<Vec<TxHash>, StoreError> {
    let rows = db::query(
        "SELECT tx FROM evidence WHERE evidence IS NULL AND asked_at < ? ORDER BY asked_at LIMIT ?",
    )
    .bind(int(before_ms))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter().map(|row| crate::store::text(row, "tx")).collect()
}

/// By the index of those that took effect.
const HEIGHT: &str = "SELECT height FROM batch WHERE hash = ? AND ended = 'included'";

/// The block that a transaction is in, if it is on record: so it can be found where no node keeps an index.
pub(super) async fn height(pool: &Pool, tx: TxHash) -> Result<Option<u64>, StoreError> {
    let row = db::query(HEIGHT)
        .bind(tx.to_string())
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    opt_uint(&row, "height")
}

/// How many transactions have brought heartbeats on chain that cannot be proven yet.
///
/// # Errors
/// If the store fails.
pub async fn missing(pool: &Pool) -> Result<u64, StoreError> {
    let row = db::query("SELECT count(*) AS n FROM evidence WHERE evidence IS NULL")
        .fetch_one(pool)
        .await?;
    uint(&row, "n")
}

/// Stores what an endpoint gave, or that none gave it, and since when (UNIX milliseconds) it counts as asked for.
pub(super) async fn store(
    conn: &mut Conn,
    tx: TxHash,
    evidence: Option<&Evidence>,
    asked_at: u64,
) -> Result<(), StoreError> {
    let text = evidence.map(serde_json::to_string).transpose();
    db::query("UPDATE evidence SET evidence = ?, asked_at = ? WHERE tx = ?")
        .bind(text.map_err(|_| bad("evidence"))?)
        .bind(int(asked_at))
        .bind(tx.to_string())
        .execute(conn)
        .await?;
    Ok(())
}

/// Forgets heartbeats received before `before_ms`, a bounded number at a time, and evidence of nothing.
///
/// # Errors
/// If the store fails.
pub async fn prune(conn: &mut Conn, before_ms: u64) -> Result<(), StoreError> {
    let done = db::query(
        "DELETE FROM heartbeat WHERE (cluster_id, node_id, epoch, sequence) IN
           (SELECT cluster_id, node_id, epoch, sequence FROM heartbeat WHERE received_at < ?
            ORDER BY received_at LIMIT 10000)",
    )
    .bind(int(before_ms))
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() > 0 {
        db::query(
            "DELETE FROM evidence WHERE NOT EXISTS (SELECT 1 FROM heartbeat WHERE heartbeat.tx = evidence.tx)",
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// The proof of a node's heartbeat, of the newest that has one if no sequence is named. None if there is none.
///
/// # Errors
/// If the store fails.
pub async fn proof(
    pool: &Pool,
    (cluster, node): (&ClusterId, &NodeId),
    epoch: Option<u64>,
    sequence: Option<u32>,
) -> Result<Option<Proof>, StoreError> {
    let row = db::query(
        "SELECT h.*, e.evidence, b.chain_id, b.contract FROM heartbeat h
         JOIN evidence e ON e.tx = h.tx AND e.evidence IS NOT NULL JOIN binding b ON b.one = 1
         WHERE h.cluster_id = ?1 AND h.node_id = ?2 AND (?3 IS NULL OR h.epoch = ?3) AND (?4 IS NULL OR h.sequence = ?4)
         ORDER BY h.epoch DESC, h.sequence DESC LIMIT 1",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(epoch.map(int))
    .bind(sequence.map(i64::from))
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let evidence: String = row.try_get("evidence")?;
    let evidence: Evidence = serde_json::from_str(&evidence).map_err(|_| bad("evidence"))?;
    put_together(&row, &evidence).map(Some)
}

/// One of the heartbeats that a transaction brought on chain.
#[derive(Debug)]
pub(super) enum Sample {
    /// None is kept any more.
    Gone,
    /// None that is kept can be read.
    Unreadable,
    /// What the transaction's evidence has to prove.
    Kept(Box<Row>),
}

/// A heartbeat that shows whether a transaction's evidence holds.
///
/// # Errors
/// If the store fails.
pub(super) async fn sample(pool: &Pool, tx: TxHash) -> Result<Sample, StoreError> {
    let mut kept = false;
    // Mostly the first can be read.
    for most in [1, MOST_SAMPLES] {
        let rows = db::query(
            "SELECT h.*, b.chain_id, b.contract FROM heartbeat h JOIN binding b ON b.one = 1 WHERE h.tx = ? LIMIT ?",
        )
        .bind(tx.to_string())
        .bind(most)
        .fetch_all(pool)
        .await?;
        for row in rows {
            kept = true;
            let stored: Vec<u8> = row.try_get("heartbeat")?;
            if full::read(&stored).is_some() {
                return Ok(Sample::Kept(Box::new(row)));
            }
        }
        if !kept {
            return Ok(Sample::Gone);
        }
    }
    Ok(Sample::Unreadable)
}

/// The proof of a heartbeat on record by this evidence.
pub(super) fn put_together(row: &Row, evidence: &Evidence) -> Result<Proof, StoreError> {
    let evidence = evidence.clone();
    let stored: Vec<u8> = row.try_get("heartbeat")?;
    let full = full::read(&stored).ok_or_else(|| bad("heartbeat"))?;
    Ok(Proof {
        format: FORMAT.to_owned(),
        version: VERSION,
        chain_id: row.try_get("chain_id")?,
        contract: row.try_get("contract")?,
        agent: Agent {
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            epoch: uint(row, "epoch")?,
            public_key: full.public_key,
            job_ids: full.job_ids,
        },
        heartbeat: full.heartbeat,
        auth: full.auth,
        tx: evidence.tx,
        inclusion: evidence.inclusion,
        signed_header: evidence.signed_header,
        validators: evidence.validators,
    })
}

#[cfg(test)]
mod tests;
