use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::db::{self, Pool};
use crate::page::{Page, Window};
use crate::store::{StoreError, int, opt_uint, text, uint};

/// A certificate on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateRow {
    /// Lower-case hex SHA-256 of the certificate.
    pub fingerprint: String,
    /// Lower-case hex serial number; that of another CA's certificate may be the same.
    pub serial: String,
    /// The CA's name.
    pub issuer: String,
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// The registration that it counts for.
    pub epoch: Option<u64>,
    /// When it was issued; one of an outside CA: when it was first seen.
    pub issued_at: UnixSeconds,
    /// Until when it counts.
    pub not_after: UnixSeconds,
    /// When it was revoked.
    pub revoked_at: Option<UnixSeconds>,
}

/// Certificates on record that have not ended or are revoked, those of one node or all, newest first.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn certificates(
    pool: &Pool,
    of: Option<&NodeId>,
    in_cluster: Option<&ClusterId>,
    window: Window<'_>,
    now: UnixSeconds,
) -> Result<Page<CertificateRow>, StoreError> {
    let (time, [fingerprint]) = window.newest::<1>()?;
    let mut sql = "SELECT * FROM certificate WHERE (issued_at_s, fingerprint) < (?, ?)
        AND (not_after_s >= ? OR revoked_at_s IS NOT NULL)"
        .to_owned();
    if of.is_some() {
        sql.push_str(" AND node_id = ?");
    }
    if in_cluster.is_some() {
        sql.push_str(" AND cluster_id = ?");
    }
    sql.push_str(" ORDER BY issued_at_s DESC, fingerprint DESC LIMIT ?");
    let mut query = db::query(sql).bind(int(time)).bind(fingerprint).bind(int(now.0));
    for wanted in [of.map(NodeId::as_str), in_cluster.map(ClusterId::as_str)]
        .into_iter()
        .flatten()
    {
        query = query.bind(wanted);
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(|row| {
        Ok(CertificateRow {
            fingerprint: row.try_get("fingerprint")?,
            serial: row.try_get("serial")?,
            issuer: row.try_get("issuer")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            epoch: opt_uint(row, "epoch")?,
            issued_at: UnixSeconds(uint(row, "issued_at_s")?),
            not_after: UnixSeconds(uint(row, "not_after_s")?),
            revoked_at: opt_uint(row, "revoked_at_s")?.map(UnixSeconds),
        })
    });
    let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
    Ok(window.cut(rows, |c| format!("{}/{}", c.issued_at.0, c.fingerprint)))
}
