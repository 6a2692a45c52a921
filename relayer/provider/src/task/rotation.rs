use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;
use hpc_schema::task::{KeyRotation, rotation_message};

use crate::db::{self, Conn, Query, Row};
use crate::identity::Seed;
use crate::store::{StoreError, int, text};

/// Rotations that nodes are told at most.
const TOLD: i64 = 16;

/// A cluster's rotations of its task key, oldest first.
///
/// # Errors
/// If the store fails.
pub async fn rotations(conn: &mut Conn, cluster: &ClusterId) -> Result<Vec<KeyRotation>, StoreError> {
    told_rotations(&ask_rotations(cluster).fetch_all(conn).await?)
}

/// Asks for them.
pub fn ask_rotations(cluster: &ClusterId) -> Query<'_> {
    db::query("SELECT * FROM task_key_rotation WHERE cluster_id = ? ORDER BY n DESC LIMIT ?")
        .bind(cluster.as_str())
        .bind(TOLD)
}

/// What [`ask_rotations`] says.
///
/// # Errors
/// If it cannot be read.
pub fn told_rotations(rows: &[Row]) -> Result<Vec<KeyRotation>, StoreError> {
    rows.iter()
        .rev()
        .map(|row| {
            Ok(KeyRotation {
                old_key: text(row, "old_key")?,
                new_key: text(row, "new_key")?,
                signature: row.try_get("signature")?,
            })
        })
        .collect()
}

/// The old key's word for the new one.
#[must_use]
pub fn rotation(scope: (&str, &str), cluster: &ClusterId, old: &Seed, new: &AgentKey) -> KeyRotation {
    let message = rotation_message(scope.0, scope.1, cluster, old.public(), new);
    KeyRotation {
        old_key: *old.public(),
        new_key: *new,
        signature: STANDARD.encode(old.sign(&message)),
    }
}

/// Puts a rotation on record.
///
/// # Errors
/// If the store fails.
pub async fn record_rotation(
    conn: &mut Conn,
    cluster: &ClusterId,
    step: &KeyRotation,
    now_ms: u64,
) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO task_key_rotation (cluster_id, n, old_key, new_key, signature, rotated_ms)
         SELECT ?1, coalesce(max(n), -1) + 1, ?2, ?3, ?4, ?5 FROM task_key_rotation WHERE cluster_id = ?1",
    )
    .bind(cluster.as_str())
    .bind(step.old_key.to_base64())
    .bind(step.new_key.to_base64())
    .bind(&step.signature)
    .bind(int(now_ms))
    .execute(conn)
    .await?;
    Ok(())
}
