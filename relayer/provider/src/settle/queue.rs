use std::collections::BTreeSet;
use std::sync::Arc;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::Params;
use hpc_schema::report::MAX_AGE_SECONDS;
use tokio::task::yield_now;

use super::apart::{Apart, NodeKey};
use super::claims::PageId;
use super::known::{Known, lapses_at};
use super::plan::Waiting;
use crate::clock::Steady;
use crate::db::{self, Row};
use crate::registry::{Node, Registry};
use crate::spool::{self, Backlog, End, EndedAs, Meta, Readable};
use crate::store::{Store, StoreError, text};

/// After so many reports others have the thread.
pub(super) const A_STRETCH: usize = 256;
/// A report within this time of its five minutes would not arrive any more.
const AGE_MARGIN_SECONDS: u64 = 10;
/// Settlement goes on by no clock that is farther from the chain's: a report of a later time came while one was ahead.
const AHEAD_MS: u64 = 60_000;

/// What waits and can be planned, with the record of each node.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<Waiting>,
    pub(super) of: Vec<(Meta, Arc<Node>)>,
    /// When a report that comes from now on may have to go first; see [`Known::next_lapse`].
    pub(super) next_lapse: Option<u64>,
}

impl Queue {
    /// Without the reports of these pages.
    pub(super) fn without(self, pages: &BTreeSet<PageId>) -> Self {
        if pages.is_empty() {
            return self;
        }
        self.of_those(|w, _| !pages.contains(&(w.cluster_id.clone(), w.page)))
    }

    /// Without the nodes that let others pass.
    pub(super) fn past(self, apart: &Apart<NodeKey>, now: Steady) -> Self {
        if apart.is_empty() {
            return self;
        }
        self.of_those(|_, meta| !apart.holds(&(meta.cluster_id.clone(), meta.node_id.clone()), now))
    }

    fn of_those(self, so: impl Fn(&Waiting, &Meta) -> bool) -> Self {
        let (waiting, of) = self
            .waiting
            .into_iter()
            .zip(self.of)
            .filter(|(w, (meta, _))| so(w, meta))
            .unzip();
        Self {
            waiting,
            of,
            next_lapse: self.next_lapse,
        }
    }

    /// The nodes of which a report waits.
    pub(super) fn nodes(&self) -> BTreeSet<NodeKey> {
        let key = |(meta, _): &(Meta, _)| (meta.cluster_id.clone(), meta.node_id.clone());
        self.of.iter().map(key).collect()
    }
}

/// Reads what waits, `full` being what the planner waits for at most. Reports that the chain would not count any more, or has counted already, end here. A row that cannot be
/// read is mended for the next look.
pub(super) async fn read(
    store: &Store,
    registry: &Registry,
    backlog: &Backlog,
    full: usize,
    now_ms: u64,
) -> Result<Queue, StoreError> {
    let params = registry.params();
    let mut queue = Queue::default();
    let mut over = Vec::new();
    let metas = spool::metas(store.reader()).await?;
    if metas.broken {
        backlog.mend(store).await?;
    }
    for (at, meta) in metas.rows.into_iter().enumerate() {
        if at % A_STRETCH == 0 {
            // Agents wait for nothing of this.
            yield_now().await;
        }
        // Not read from the chain yet, or a newer epoch's: the next sync decides, unless time has.
        let node = registry
            .node(&meta.cluster_id, &meta.node_id)
            .filter(|n| n.chain.epoch >= meta.epoch);
        let end = match &node {
            Some(node) => end_here(&meta, node, now_ms),
            None => too_old(&meta, now_ms),
        };
        if let Some(end) = end {
            if end.ended == EndedAs::Refused {
                let code = Code::TimestampExpired;
                tracing::warn!(cluster = %meta.cluster_id, node = %meta.node_id, sequence = meta.sequence, %code,
                    "an accepted report grew too old before it could be sent; look at the chain's and the relayer's condition");
                registry.refused(&meta.cluster_id, &meta.node_id, code, meta.sequence);
            }
            over.push((meta, end));
            continue;
        }
        let Some(node) = node else { continue };
        queue.waiting.push(waiting(&meta, &node, &params, now_ms));
        queue.of.push((meta, node));
    }
    let mut known = Known::at(now_ms);
    registry.each(|node| known.see(node, &params)).await;
    queue.next_lapse = known.next_lapse();
    if queue.waiting.len() >= full {
        for waits in queue.of.chunks(A_STRETCH) {
            waits.iter().for_each(|(_, node)| known.waits(node));
            yield_now().await;
        }
        for waiting in queue.waiting.chunks_mut(A_STRETCH) {
            for w in waiting {
                w.absent = known.absent(&w.cluster_id, w.page);
            }
            yield_now().await;
        }
    }
    if !over.is_empty() {
        let mut tx = store.begin().await?;
        for (meta, end) in over {
            spool::drop_waiting(
                &mut tx,
                &meta.cluster_id,
                &meta.node_id,
                meta.sequence,
                &end,
                now_ms,
            )
            .await?;
        }
        tx.commit().await?;
    }
    Ok(queue)
}

fn end_here(meta: &Meta, node: &Node, now_ms: u64) -> Option<End> {
    if node.chain.epoch > meta.epoch {
        // Came back from a dead transaction after a newer registration.
        return Some(End::local(EndedAs::Superseded, Some(Code::SupersededByRotation)));
    }
    if node.chain.sequence >= meta.sequence {
        // Somebody else has relayed it, or a later one.
        return Some(End::local(EndedAs::OnChain, Some(Code::StaleSequence)));
    }
    too_old(meta, now_ms)
}

fn too_old(meta: &Meta, now_ms: u64) -> Option<End> {
    let age = (now_ms / 1000).saturating_sub(u64::from(meta.time));
    (age > MAX_AGE_SECONDS - AGE_MARGIN_SECONDS)
        .then(|| End::local(EndedAs::Refused, Some(Code::TimestampExpired)))
}

fn waiting(meta: &Meta, node: &Node, params: &Params, now_ms: u64) -> Waiting {
    let known = meta.section_digest == Some(node.section_digest);
    let ahead = meta.queued_at > now_ms.saturating_add(AHEAD_MS);
    Waiting {
        cluster_id: meta.cluster_id.clone(),
        page: node.chain.page,
        slot: node.chain.slot,
        // Due: since when it waits is not known, and a newer one keeps that time.
        queued_at: if ahead { 0 } else { meta.queued_at },
        lapses_at: lapses_at(node, params),
        absent: 0,
        time: meta.time,
        section_len: if known { 0 } else { meta.section_len },
    }
}

/// The nodes of which a report has been accepted and has not ended.
pub(super) async fn unsettled(store: &Store) -> Result<BTreeSet<(ClusterId, NodeId)>, StoreError> {
    let query = db::query(
        "SELECT cluster_id, node_id FROM waiting UNION SELECT cluster_id, node_id FROM batch_report",
    );
    let read = |row: &Row| -> Result<NodeKey, _> { Ok((text(row, "cluster_id")?, text(row, "node_id")?)) };
    // What names no node is of none.
    let known = Readable::of(query, store.reader(), read).await?;
    Ok(known.rows.into_iter().collect())
}

/// How long an accepted report may be on its way into the database, of which [`unsettled`] knows nothing yet, from the request's
/// arrival; no cluster is swept while the database is behind for a part of it.
const ON_THE_WAY_MS: u64 = 10_000;

/// Whether a report of the node was accepted a moment ago, and is not on chain. A time still to come says that the clock was
/// ahead.
pub(super) fn is_just_accepted(node: &Node, now_ms: u64) -> bool {
    node.acked > node.chain.sequence && now_ms.abs_diff(node.received_at) < ON_THE_WAY_MS
}

#[cfg(test)]
mod tests {
    use hpc_schema::registry::RelayView;
    use hpc_schema::time::UnixSeconds;

    use super::*;
    use crate::registry::scene::view;
    use crate::spool::{Accept, Spool};

    /// The time of [`Accept`]'s report of ones, milliseconds.
    const NOW: u64 = 0x0101_0101 * 1_000;

    async fn damage(store: &Store, sql: &'static str) {
        let mut tx = store.begin().await.unwrap();
        let done = db::query(sql).execute(&mut *tx).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_keeps_no_other_report_from_the_chain_and_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let registry = Registry::new("c", "k");
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let (spool, task) = Spool::start(store.clone(), None, Arc::default());
        for (slot, name) in (0u8..).zip(["node-a", "node-b", "node-c"]) {
            let node: NodeId = name.parse().unwrap();
            let known = RelayView {
                node_id: node.clone(),
                slot,
                ..view()
            };
            registry.set_node(&cluster, known, 1, UnixSeconds(0));
            let report = Accept::new((cluster.clone(), node), (1, 2), ([1; 70], [2; 64]), NOW);
            assert!(spool.accept(report).await.unwrap().accepted);
        }
        let backlog = spool.backlog();
        let names = async |now| -> Vec<String> {
            let found = read(&store, &registry, &backlog, 50, now).await.unwrap();
            found.of.iter().map(|(m, _)| m.node_id.to_string()).collect()
        };
        // Of one it can be read when it came, the other's report itself is lost.
        damage(
            &store,
            "UPDATE waiting SET queued_at = -1 WHERE node_id = 'node-a'",
        )
        .await;
        damage(
            &store,
            "UPDATE waiting SET report = x'02' WHERE node_id = 'node-b'",
        )
        .await;
        assert_eq!(names(NOW).await, ["node-c"]);
        assert!(spool.mended().is_some());
        assert_eq!(names(NOW).await, ["node-a", "node-c"]);
        // Nor does one hinder the end of those that grow too old.
        damage(
            &store,
            "UPDATE waiting SET superseded_count = -1 WHERE node_id = 'node-a'",
        )
        .await;
        assert!(names(NOW + 3_600_000).await.is_empty());
        assert_eq!(spool::depth(store.reader()).await.unwrap().waiting, 0);
        // A row that names no node holds up no sweep.
        let report = Accept::new(
            (cluster.clone(), "node-a".parse().unwrap()),
            (1, 3),
            ([1; 70], [2; 64]),
            NOW,
        );
        assert!(spool.accept(report).await.unwrap().accepted);
        damage(&store, "UPDATE waiting SET cluster_id = 'no cluster!'").await;
        assert!(unsettled(&store).await.unwrap().is_empty());
        drop((spool, backlog));
        task.await.unwrap();
    }
}
