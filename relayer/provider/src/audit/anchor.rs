use std::collections::HashMap;

use hpc_schema::id::ClusterId;
use hpc_schema::registry::AnchorView;
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Digest, KIND, Row};
use crate::db::{self, Conn, Pool};
use crate::store::{StoreError, bytes, int, text, uint};

/// A head of the log that is anchored on chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// In which cluster.
    pub cluster_id: ClusterId,
    /// Number of the row.
    pub seq: u64,
    /// Its digest.
    pub digest: Digest,
    /// The transaction.
    pub tx: String,
    /// When.
    pub at: UnixSeconds,
}

/// Notes that a head is anchored.
///
/// # Errors
/// If the store fails.
pub async fn record_anchor(conn: &mut Conn, anchor: &Anchor) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO audit_anchor (cluster_id, seq, digest, tx, at_s) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id) DO UPDATE SET seq = excluded.seq, digest = excluded.digest, tx = excluded.tx, at_s = excluded.at_s",
    )
    .bind(anchor.cluster_id.as_str())
    .bind(int(anchor.seq))
    .bind(anchor.digest.as_slice())
    .bind(&anchor.tx)
    .bind(int(anchor.at.0))
    .execute(conn)
    .await?;
    Ok(())
}

/// The newest anchor of each cluster, as the daemon remembers it.
///
/// # Errors
/// If the store fails.
pub async fn anchored(pool: &Pool) -> Result<Vec<Anchor>, StoreError> {
    let rows = db::query("SELECT * FROM audit_anchor ORDER BY cluster_id")
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Anchor {
                cluster_id: text(row, "cluster_id")?,
                seq: uint(row, "seq")?,
                digest: bytes(row, "digest")?,
                tx: row.try_get("tx")?,
                at: UnixSeconds(uint(row, "at_s")?),
            })
        })
        .collect()
}

/// The chain's anchors beside the log.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Checked {
    /// Anchors of ours that the chain has.
    pub anchors: u64,
    /// Number of the newest row that one of them is of; rows up to there are as they were then.
    pub anchored_up_to: u64,
    /// When that was, by the chain's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchored_at: Option<UnixSeconds>,
    /// Height of the first block that has one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_height: Option<u64>,
    /// Height of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_height: Option<u64>,
    /// Digests that the chain has and the log has not: it was written anew, or its end was cut off.
    pub missing: Vec<String>,
}

/// Compares the chain's anchors, of senders that are ours, with the digests of a log's rows.
#[must_use]
pub fn check<'a>(anchors: &[AnchorView], ours: &[String], rows: impl Iterator<Item = &'a Row>) -> Checked {
    let known: HashMap<&str, u64> = rows.map(|row| (row.digest.as_str(), row.seq)).collect();
    let mut checked = Checked::default();
    for anchor in anchors
        .iter()
        .filter(|a| a.kind == KIND && ours.contains(&a.sender))
    {
        checked.anchors += 1;
        let (from, to) = (checked.from_height, checked.to_height);
        checked.from_height = Some(from.map_or(anchor.height, |h| h.min(anchor.height)));
        checked.to_height = Some(to.map_or(anchor.height, |h| h.max(anchor.height)));
        match known.get(anchor.digest.as_str()) {
            Some(seq) if *seq >= checked.anchored_up_to => {
                checked.anchored_up_to = *seq;
                checked.anchored_at = Some(anchor.time);
            }
            Some(_) => {}
            None => checked.missing.push(anchor.digest.clone()),
        }
    }
    checked
}
