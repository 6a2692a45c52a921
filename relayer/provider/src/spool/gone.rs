//! What was accepted of nodes that are on record no more: a site may have as many as it has ever had machines.

use std::sync::{Arc, Mutex, PoisonError};

use hpc_schema::id::{ClusterId, NodeId};

use crate::db::{self, Conn};
use crate::store::{StoreError, int, text, uint};

/// Rows that go at a time.
const MOST: i64 = 1000;

/// A node of which it is remembered no more what was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// The registration that it had. Another one is of a later epoch, and its sequences begin anew.
    pub epoch: u64,
}

/// Forgets what was accepted of nodes that are not on record, of which nothing has come since `before_ms`, and nothing waits or
/// is under way: a bounded number at a time. Which, for [`super::Spool::forget`].
///
/// # Errors
/// If the store fails.
pub async fn forget_gone(conn: &mut Conn, before_ms: u64) -> Result<Vec<Gone>, StoreError> {
    let rows = db::query(
        "DELETE FROM intake WHERE received_at < ?1 AND (cluster_id, node_id) IN (
           SELECT i.cluster_id, i.node_id FROM intake i WHERE i.received_at < ?1
             AND NOT EXISTS (SELECT 1 FROM node n WHERE n.cluster_id = i.cluster_id AND n.node_id = i.node_id)
             AND NOT EXISTS (SELECT 1 FROM waiting w WHERE w.cluster_id = i.cluster_id AND w.node_id = i.node_id)
             AND NOT EXISTS (SELECT 1 FROM batch_report b WHERE b.cluster_id = i.cluster_id AND b.node_id = i.node_id)
           LIMIT ?2)
         RETURNING cluster_id, node_id, epoch",
    )
    .bind(int(before_ms))
    .bind(MOST)
    .fetch_all(conn)
    .await?;
    let mut gone = Vec::new();
    for row in &rows {
        let read = || {
            Ok::<_, StoreError>(Gone {
                cluster_id: text(row, "cluster_id")?,
                node_id: text(row, "node_id")?,
                epoch: uint(row, "epoch")?,
            })
        };
        match read() {
            Ok(one) => gone.push(one),
            // Nobody remembers it by what cannot be read.
            Err(e) if e.is_unreadable() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(gone)
}

/// Nodes that the writer of the journal need not remember, until it has heard of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Forgotten(Arc<Mutex<Vec<Gone>>>);

impl Forgotten {
    pub(super) fn add(&self, gone: Vec<Gone>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
    }

    pub(super) fn take(&self) -> Vec<Gone> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::super::accept::{Accept, accept};
    use super::super::intakes;
    use super::*;
    use crate::registry::scene::on_record;
    use crate::store::Store;

    const NOW: u64 = 1_800_000_000_000;

    fn of(node: &str) -> (ClusterId, NodeId) {
        ("hpc-cluster-1".parse().unwrap(), node.parse().unwrap())
    }

    async fn run(conn: &mut Conn, sql: &'static str, node: &str) {
        db::query(sql)
            .bind("hpc-cluster-1")
            .bind(node)
            .execute(conn)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn what_was_accepted_of_a_node_goes_once_it_is_on_record_no_more_and_nothing_of_it_is_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        let mut tx = store.begin().await.unwrap();
        for (node, at) in [
            ("bound", NOW - 1),
            ("gone", NOW - 1),
            ("just-now", NOW),
            ("on-record", NOW - 1),
            ("waits", NOW - 1),
        ] {
            accept(&mut tx, &Accept::new(of(node), (3, 7), ([1; 70], [2; 64]), at))
                .await
                .unwrap();
            if node != "waits" {
                let sql = "DELETE FROM waiting WHERE cluster_id = ? AND node_id = ?";
                run(&mut tx, sql, node).await;
            }
        }
        on_record(&mut tx, "hpc-cluster-1", "on-record").await;
        let batch =
            db::query("INSERT INTO batch (signer, kind, created_at) VALUES ('s', 'reports', 0) RETURNING id");
        let batch: i64 = batch.fetch_one(&mut *tx).await.unwrap().get("id");
        db::query(
            "INSERT INTO batch_report (batch_id, item, cluster_id, node_id, epoch, sequence, report, signature,
             queued_at, received_at, superseded_count, recorded) VALUES (?, 0, ?, ?, 3, 7, ?, ?, 1, 1, 0, 0)",
        )
        .bind(batch)
        .bind("hpc-cluster-1")
        .bind("bound")
        .bind([1u8; 70].as_slice())
        .bind([2u8; 64].as_slice())
        .execute(&mut *tx)
        .await
        .unwrap();
        let gone = forget_gone(&mut tx, NOW).await.unwrap();
        tx.commit().await.unwrap();
        let (cluster_id, node_id) = of("gone");
        let wanted = Gone {
            cluster_id,
            node_id,
            epoch: 3,
        };
        assert_eq!(gone, [wanted]);
        let left = intakes(store.reader()).await.unwrap();
        let mut left: Vec<_> = left.into_iter().map(|i| i.node_id.to_string()).collect();
        left.sort();
        assert_eq!(left, ["bound", "just-now", "on-record", "waits"]);
    }
}
