use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::Cluster;

use crate::db::{self, Conn, Pool, Query, Row};
use crate::store::{StoreError, text};

/// Clusters as last read from the chain, in the order of their ids.
///
/// # Errors
/// If the store fails.
pub async fn clusters(pool: &Pool) -> Result<Vec<Cluster>, StoreError> {
    let rows = db::query("SELECT record FROM cluster ORDER BY cluster_id")
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

/// Clusters that have a node of this id.
///
/// # Errors
/// If the store fails.
pub async fn clusters_of(conn: &mut Conn, node: &NodeId) -> Result<Vec<ClusterId>, StoreError> {
    told_clusters(&ask_clusters(node).fetch_all(conn).await?)
}

/// Asks for the clusters that have a node of this id.
pub fn ask_clusters(node: &NodeId) -> Query<'_> {
    db::query(
        "SELECT cluster_id FROM cluster c WHERE EXISTS
         (SELECT 1 FROM node n WHERE n.cluster_id = c.cluster_id AND n.node_id = ?) ORDER BY cluster_id",
    )
    .bind(node.as_str())
}

/// What [`ask_clusters`] says.
///
/// # Errors
/// If it cannot be read.
pub fn told_clusters(rows: &[Row]) -> Result<Vec<ClusterId>, StoreError> {
    rows.iter().map(|row| text(row, "cluster_id")).collect()
}
