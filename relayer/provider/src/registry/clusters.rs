use hpc_schema::registry::Cluster;
use sqlx::{Row as _, SqlitePool};

use crate::store::StoreError;

/// Clusters as last read from the chain, in the order of their ids.
///
/// # Errors
/// If the store fails.
pub async fn clusters(pool: &SqlitePool) -> Result<Vec<Cluster>, StoreError> {
    let rows = sqlx::query("SELECT record FROM cluster ORDER BY cluster_id")
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            let text: String = row.try_get(0)?;
            serde_json::from_str(&text).map_err(|_| StoreError::Value {
                table: "cluster",
                column: "record",
            })
        })
        .collect()
}
