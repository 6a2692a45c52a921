//! Rows of what is bound to a transaction that cannot be read: it ends for all others as the chain says. What of a row can be
//! read stays, and whatever is lost of an item, its row does: what became of each is written by its place among the rows.

use std::collections::BTreeSet;

use hpc_schema::id::{ClusterId, NodeId};

use super::rows::{Member, unreadable};
use crate::db::{self, Conn, Pool, Row};
use crate::store::{StoreError, int, text};

/// The transactions with a row that cannot be read.
///
/// # Errors
/// If the store fails.
pub(super) async fn broken(pool: &Pool) -> Result<BTreeSet<i64>, StoreError> {
    let mut found = BTreeSet::new();
    let note = |row: &Row| {
        if unreadable(Member::read(row))?.is_some() {
            let batch: i64 = row.try_get("batch_id")?;
            found.insert(batch);
        }
        Ok::<(), StoreError>(())
    };
    db::query("SELECT * FROM batch_report")
        .fetch_each(pool, note)
        .await?;
    Ok(found)
}

/// A row that cannot be read.
struct Broken {
    item: i64,
    column: String,
    left: Option<Member>,
    node: Option<(ClusterId, NodeId)>,
}

/// Writes the rows of a transaction anew that cannot be read; what was done to each.
///
/// # Errors
/// If the store fails.
pub(super) async fn mend(conn: &mut Conn, batch: i64, now_ms: u64) -> Result<Vec<String>, StoreError> {
    let mut all = Vec::new();
    let mut named = None;
    let note = |row: &Row| {
        let node = node_of(row);
        named = named.take().or_else(|| node.clone());
        if let Some(column) = unreadable(Member::read(row))? {
            all.push(Broken {
                item: row.try_get("item")?,
                column,
                left: Member::left(row),
                node,
            });
        }
        Ok::<(), StoreError>(())
    };
    db::query("SELECT * FROM batch_report WHERE batch_id = ? ORDER BY item")
        .bind(batch)
        .fetch_each(&mut *conn, note)
        .await?;
    let mut done = Vec::new();
    for one in all {
        let of = (batch, one.item);
        // Which of its nodes a place stands for that says nothing else does not matter.
        let node = one.node.or_else(|| named.clone());
        let then = match (one.left, node) {
            (Some(left), _) => {
                write(conn, of, &left, now_ms).await?;
                if left.is_lost() {
                    "what was signed is lost; if it has not come on chain it cannot go again"
                } else {
                    "it was written anew and ends as the others"
                }
            }
            (None, Some(node)) => {
                write(conn, of, &nothing(node), now_ms).await?;
                "which report it was is lost"
            }
            (None, None) => {
                take_away(conn, of).await?;
                "the row was taken away, as none of the transaction names a node"
            }
        };
        let (item, column) = (one.item, one.column);
        done.push(format!(
            "batch_report.{column} of item {item} of transaction {batch} could not be read: {then}"
        ));
    }
    Ok(done)
}

fn node_of(row: &Row) -> Option<(ClusterId, NodeId)> {
    Some((text(row, "cluster_id").ok()?, text(row, "node_id").ok()?))
}

/// An item that has ended already, and only keeps its place.
fn nothing((cluster_id, node_id): (ClusterId, NodeId)) -> Member {
    Member {
        cluster_id,
        node_id,
        epoch: 0,
        sequence: 0,
        report: [0; 70],
        signature: [0; 64],
        queued_at: 0,
        received_at: 0,
        superseded_from: None,
        superseded_count: 0,
        recorded: true,
        full: None,
    }
}

async fn write(
    conn: &mut Conn,
    (batch, item): (i64, i64),
    m: &Member,
    now_ms: u64,
) -> Result<(), StoreError> {
    let since = |at: u64| int(if at == 0 { now_ms } else { at });
    db::query(
        "UPDATE batch_report SET cluster_id = ?, node_id = ?, epoch = ?, sequence = ?, report = ?, signature = ?,
         queued_at = ?, received_at = ?, superseded_from = ?, superseded_count = ?, recorded = ?
         WHERE batch_id = ? AND item = ?",
    )
    .bind(m.cluster_id.as_str())
    .bind(m.node_id.as_str())
    .bind(int(m.epoch))
    .bind(i64::from(m.sequence))
    .bind(m.report.as_slice())
    .bind(m.signature.as_slice())
    .bind(since(m.queued_at))
    .bind(since(m.received_at))
    .bind(m.superseded_from.map(i64::from))
    .bind(int(m.superseded_count))
    .bind(m.recorded)
    .bind(batch)
    .bind(item)
    .execute(conn)
    .await?;
    Ok(())
}

async fn take_away(conn: &mut Conn, (batch, item): (i64, i64)) -> Result<(), StoreError> {
    db::query("DELETE FROM batch_report WHERE batch_id = ? AND item = ?")
        .bind(batch)
        .bind(item)
        .execute(conn)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use hpc_schema::code::Code;

    use super::super::mend::mend_all;
    use super::super::tests::report;
    use super::super::writer::commit;
    use super::super::{
        Accept, Backlog, End, EndRow, EndedAs, bind, depth, end_bound_on_chain, ends_of, metas,
        return_member, unbind,
    };
    use super::*;
    use crate::db::Value;
    use crate::store::Store;

    /// A transaction has report 4 of nodes 1 to 3, and that of the second this value in a column.
    async fn damaged(
        dir: &tempfile::TempDir,
        column: &str,
        value: impl Into<Value<'static>>,
    ) -> (Store, u64) {
        let store = Store::for_test(&dir.path().join("p.db")).await;
        let reports = [1, 2, 3].map(|n| Accept {
            node_id: format!("node-{n:04}").parse().unwrap(),
            ..report(1, 4, 7)
        });
        commit(&store, &reports).await.unwrap();
        let members: Vec<Member> = reports.iter().map(Accept::member).collect();
        let mut tx = store.begin().await.unwrap();
        let row = db::query(
            "INSERT INTO batch (signer, kind, hash, created_at) VALUES ('s', 'reports', 'H', 0) RETURNING id",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        let batch = u64::try_from(row.get::<i64, _>(0)).unwrap();
        bind(&mut tx, batch, &members).await.unwrap();
        let done = db::query(format!("UPDATE batch_report SET {column} = ? WHERE item = 1")).bind(value);
        assert_eq!(done.execute(&mut *tx).await.unwrap().rows_affected(), 1);
        tx.commit().await.unwrap();
        (store, batch)
    }

    async fn ends(store: &Store, node: u8) -> Vec<EndRow> {
        let (cluster, node) = (
            "hpc-cluster-1".parse().unwrap(),
            format!("node-{node:04}").parse().unwrap(),
        );
        ends_of(store.reader(), &cluster, &node, 9).await.unwrap()
    }

    /// What becomes of the second one's report.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Left {
        /// What becomes of the others'.
        All,
        /// It can be told, and not sent again.
        Name,
        Nothing,
    }

    fn damages() -> [(&'static str, Value<'static>, Left); 9] {
        [
            ("queued_at", Value::from(-1i64), Left::All),
            ("received_at", Value::from(-1i64), Left::All),
            ("superseded_from", Value::from(-1i64), Left::All),
            ("superseded_count", Value::from(-1i64), Left::All),
            ("report", Value::from(vec![1u8; 69]), Left::Name),
            ("signature", Value::from(vec![2u8]), Left::Name),
            ("epoch", Value::from(-1i64), Left::Nothing),
            ("sequence", Value::from(1i64 << 32), Left::All),
            ("cluster_id", Value::from("no cluster!"), Left::Nothing),
        ]
    }

    #[tokio::test]
    async fn a_row_of_a_dead_transaction_that_cannot_be_read_keeps_no_other_report_from_going_again() {
        for (column, value, left) in damages() {
            let dir = tempfile::tempdir().unwrap();
            let (store, batch) = damaged(&dir, column, value).await;
            let what = mend_all(&store).await.unwrap().unwrap();
            let named = format!("batch_report.{column} of item 1");
            assert!(
                what.contains(&named) && what.contains("look at the disk"),
                "{what}"
            );
            assert_eq!(mend_all(&store).await.unwrap(), None, "{column}");
            let members = Backlog::default().members(&store, batch).await.unwrap();
            let mut tx = store.begin().await.unwrap();
            let mut ended = Vec::new();
            for m in &members {
                ended.extend(return_member(&mut tx, m, 9).await.unwrap());
            }
            let refused = End::local(EndedAs::Refused, Some(Code::Unavailable));
            let lost = (left == Left::Name).then_some(refused);
            assert_eq!(ended, Vec::from_iter(lost), "{column}");
            unbind(&mut tx, batch).await.unwrap();
            tx.commit().await.unwrap();
            let waiting = metas(store.reader()).await.unwrap();
            let nodes: Vec<_> = waiting.rows.iter().map(|m| m.node_id.as_str()).collect();
            if left == Left::All {
                assert_eq!(nodes, ["node-0001", "node-0002", "node-0003"], "{column}");
                assert_eq!(depth(store.reader()).await.unwrap().oldest, Some(7), "{column}");
            } else {
                assert_eq!(nodes, ["node-0001", "node-0003"], "{column}");
            }
            let ends = ends(&store, 2).await;
            let ends: Vec<_> = ends
                .iter()
                .map(|e| (e.sequence, e.ended.as_str(), e.code))
                .collect();
            let lost = (left == Left::Name).then_some((4, "refused", Some(Code::Unavailable)));
            assert_eq!(ends, Vec::from_iter(lost), "{column}");
            store.close().await;
        }
    }

    #[tokio::test]
    async fn what_came_on_chain_with_a_row_that_cannot_be_read_ends_in_its_own_place() {
        for (column, value, left) in damages() {
            let dir = tempfile::tempdir().unwrap();
            let (store, batch) = damaged(&dir, column, value).await;
            // Settlement reads it without having looked for damage.
            let members = Backlog::default().members(&store, batch).await.unwrap();
            let known: Vec<bool> = members.iter().map(Member::is_known).collect();
            assert_eq!(known, [true, left != Left::Nothing, true], "{column}");
            assert_eq!(members[2].node_id.as_str(), "node-0003", "{column}");
            let mut tx = store.begin().await.unwrap();
            end_bound_on_chain(&mut tx, batch, 77, 10).await.unwrap();
            unbind(&mut tx, batch).await.unwrap();
            tx.commit().await.unwrap();
            for (node, count) in [(1, 1), (2, usize::from(left != Left::Nothing)), (3, 1)] {
                let ends = ends(&store, node).await;
                assert_eq!(ends.len(), count, "{column} {node}");
                assert!(ends.iter().all(|e| e.ended == "on_chain" && e.sequence == 4));
            }
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_transaction_of_which_no_row_names_a_node_has_none_left() {
        let dir = tempfile::tempdir().unwrap();
        let (store, batch) = damaged(&dir, "queued_at", -1i64).await;
        let mut tx = store.begin().await.unwrap();
        let done = db::query("UPDATE batch_report SET node_id = 'no node!'");
        done.execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        assert!(mend_all(&store).await.unwrap().unwrap().contains("taken away"));
        let members = Backlog::default().members(&store, batch).await.unwrap();
        assert!(members.is_empty());
        store.close().await;
    }
}
