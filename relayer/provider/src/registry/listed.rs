use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use super::store::{COLUMNS, Known, TABLES, read};
use crate::db::{self, Pool};
use crate::page::{Page, Window};
use crate::store::{StoreError, opt_uint, sequence, uint};

/// A node as operators see it, with what other parts of the store say of it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// As stored.
    pub known: Known,
    /// Epoch, highest sequence accepted here, and when, UNIX milliseconds.
    pub intake: Option<(u64, u32, u64)>,
    /// What a report was last refused with after it had been accepted, and when, UNIX milliseconds.
    pub refusal: Option<(Code, u64)>,
    /// Why the operator has disabled it.
    pub disabled: Option<String>,
}

/// Which nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Which<'a> {
    /// Only of this cluster.
    pub cluster: Option<&'a ClusterId>,
    /// Only of this id.
    pub node: Option<&'a NodeId>,
}

/// Nodes in the order of cluster and id.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn listed(pool: &Pool, which: Which<'_>, window: Window<'_>) -> Result<Page<Listed>, StoreError> {
    let [cluster, node] = window.texts::<2>()?;
    // What is not asked for stands in no condition: either index can then be used.
    let mut sql = format!(
        "SELECT {COLUMNS}, d.reason AS disabled_reason, i.epoch AS intake_epoch, i.acked_sequence,
                i.received_at AS intake_at, i.refusal_code AS chain_code, i.refusal_at AS chain_at
         FROM {TABLES}
         LEFT JOIN intake i ON i.cluster_id = n.cluster_id AND i.node_id = n.node_id
         LEFT JOIN disabled d ON d.cluster_id = n.cluster_id AND d.node_id = n.node_id
         WHERE (n.cluster_id, n.node_id) > (?, ?)"
    );
    if which.cluster.is_some() {
        sql.push_str(" AND n.cluster_id = ?");
    }
    if which.node.is_some() {
        sql.push_str(" AND n.node_id = ?");
    }
    sql.push_str(" ORDER BY n.cluster_id, n.node_id LIMIT ?");
    let mut query = db::query(sql).bind(cluster).bind(node);
    for wanted in [
        which.cluster.map(ClusterId::as_str),
        which.node.map(NodeId::as_str),
    ]
    .into_iter()
    .flatten()
    {
        query = query.bind(wanted);
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(|row| {
        let intake = match opt_uint(row, "intake_epoch")? {
            Some(epoch) => Some((epoch, sequence(row, "acked_sequence")?, uint(row, "intake_at")?)),
            None => None,
        };
        let code = opt_uint(row, "chain_code")?
            .and_then(|n| u8::try_from(n).ok())
            .and_then(Code::from_number);
        Ok(Listed {
            known: read(row)?,
            intake,
            refusal: code.zip(opt_uint(row, "chain_at")?),
            disabled: row.try_get("disabled_reason")?,
        })
    });
    let rows = rows.collect::<Result<Vec<_>, StoreError>>()?;
    Ok(window.cut(rows, |l| format!("{}/{}", l.known.cluster_id, l.known.node_id)))
}

#[cfg(test)]
mod tests {
    use super::super::scene::on_record;
    use super::*;
    use crate::store::Store;

    async fn filled(store: &Store, nodes: u32) {
        let mut tx = store.begin().await.unwrap();
        for n in 0..nodes {
            let (cluster, node) = (format!("hpc-cluster-{}", n % 3), format!("node-{:05}", n / 3));
            on_record(&mut tx, &cluster, &node).await;
        }
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn nodes_come_a_page_at_a_time_and_one_of_an_id_is_found_without_reading_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::for_test(&dir.path().join("p.db")).await;
        filled(&store, 2_500).await;
        let all = async |which: Which<'_>, limit| {
            let (mut found, mut after) = (Vec::new(), None::<String>);
            loop {
                let window = Window {
                    after: after.as_deref(),
                    limit: Some(limit),
                };
                let page = listed(store.reader(), which, window).await.unwrap();
                assert!(page.items.len() <= usize::try_from(limit).unwrap());
                found.extend(
                    page.items
                        .into_iter()
                        .map(|l| (l.known.cluster_id, l.known.node_id)),
                );
                after = page.next;
                if after.is_none() {
                    return found;
                }
            }
        };
        let every = all(Which::default(), 999).await;
        assert!(every.len() == 2_500 && every.is_sorted());
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-00007".parse().unwrap());
        let of_cluster = Which {
            cluster: Some(&cluster),
            node: None,
        };
        assert_eq!(all(of_cluster, 100).await.len(), 833);
        let of_node = Which {
            cluster: None,
            node: Some(&node),
        };
        assert_eq!(all(of_node, 2).await.len(), 3);
        if store.is_shared() {
            return;
        }
        // What SQLite does for it: a search by an index, no scan of nodes.
        for (condition, index) in [("", "PRIMARY KEY"), (" AND n.node_id = 'x'", "node_by_id")] {
            let plan = db::query(format!(
                "EXPLAIN QUERY PLAN SELECT * FROM node n WHERE (n.cluster_id, n.node_id) > ('', ''){condition}
                 ORDER BY n.cluster_id, n.node_id LIMIT 10"
            ));
            let rows = plan.fetch_all(store.reader()).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|r| r.get("detail")).collect();
            let first = &plan[0];
            assert!(first.starts_with("SEARCH") && first.contains(index), "{plan:?}");
        }
    }
}
