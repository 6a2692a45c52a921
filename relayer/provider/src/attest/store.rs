use hpc_schema::id::{ClusterId, NodeId};
use serde_json::json;

use super::{Expected, Pinned, Quoted};
use crate::db::{self, Conn, Target};
use crate::store::{StoreError, int, uint};

/// Which attestation key the token `jti` asks for.
///
/// # Errors
/// If the store fails.
pub async fn expected_of_token(conn: &mut Conn, jti: &str) -> Result<Option<Expected>, StoreError> {
    let row = db::query("SELECT attestation_key FROM token WHERE jti = ?")
        .bind(jti)
        .fetch_optional(conn)
        .await?;
    let text: Option<String> = match row {
        Some(row) => row.try_get("attestation_key")?,
        None => None,
    };
    text.map(|t| {
        Expected::parse(&t).ok_or(StoreError::Value {
            table: "token",
            column: "attestation_key",
        })
    })
    .transpose()
}

/// Has the token `jti` ask for an attestation key ([`Expected`]).
///
/// # Errors
/// If the store fails.
pub async fn expect(conn: &mut Conn, jti: &str, key: &str) -> Result<(), StoreError> {
    db::query("UPDATE token SET attestation_key = ? WHERE jti = ?")
        .bind(key)
        .bind(jti)
        .execute(conn)
        .await?;
    Ok(())
}

/// The TPM that is pinned for a node.
///
/// # Errors
/// If the store fails.
pub async fn pinned(
    on: impl Into<Target<'_>>,
    cluster: &ClusterId,
    node: &NodeId,
) -> Result<Option<Pinned>, StoreError> {
    let row = db::query("SELECT * FROM attestation WHERE cluster_id = ? AND node_id = ?")
        .bind(cluster.as_str())
        .bind(node.as_str())
        .fetch_optional(on)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let pcrs: String = row.try_get("pcrs")?;
    Ok(Some(Pinned {
        key: row.try_get("attestation_key")?,
        pcrs: serde_json::from_str(&pcrs).map_err(|_| StoreError::Value {
            table: "attestation",
            column: "pcrs",
        })?,
        pinned_at: uint(&row, "pinned_at_s")?,
        quoted_at: uint(&row, "quoted_at_s")?,
    }))
}

/// Pins what has been judged good; the time of a pin that stays stays.
///
/// # Errors
/// If the store fails.
pub async fn pin(
    conn: &mut Conn,
    (cluster, node): (&ClusterId, &NodeId),
    quoted: &Quoted,
    now: u64,
) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO attestation (cluster_id, node_id, attestation_key, pcrs, pinned_at_s, quoted_at_s)
         VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (cluster_id, node_id) DO UPDATE SET
         pinned_at_s = CASE WHEN attestation.attestation_key = excluded.attestation_key
                       THEN attestation.pinned_at_s ELSE excluded.pinned_at_s END,
         attestation_key = excluded.attestation_key, pcrs = excluded.pcrs, quoted_at_s = excluded.quoted_at_s",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(&quoted.key)
    .bind(json!(quoted.pcrs).to_string())
    .bind(int(now))
    .bind(int(now))
    .execute(conn)
    .await?;
    Ok(())
}
