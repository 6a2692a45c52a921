use hpc_schema::id::{ClusterId, NodeId};

use crate::db::{self, Pool};
use crate::store::{StoreError, int};

/// The hardware fingerprint that began `epoch` of a node; none if this store does not know the registration, or the agent
/// gave none.
///
/// # Errors
/// If the store fails.
pub async fn hardware(
    pool: &Pool,
    cluster: &ClusterId,
    node: &NodeId,
    epoch: u64,
) -> Result<Option<String>, StoreError> {
    let row = db::query(
        "SELECT hardware_fingerprint FROM registration
         WHERE cluster_id = ? AND node_id = ? AND epoch = ? ORDER BY id DESC LIMIT 1",
    )
    .bind(cluster.as_str())
    .bind(node.as_str())
    .bind(int(epoch))
    .fetch_optional(pool)
    .await?;
    Ok(match row {
        Some(row) => row.try_get(0)?,
        None => None,
    })
}
