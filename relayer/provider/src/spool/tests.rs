//! A model of the queue against the database: whatever happens, every accepted report is accounted for once.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::accept::accept;
use super::*;
use crate::db::{self, Conn, Row};
use crate::prove;
use crate::store::Store;

#[derive(Debug, Clone)]
enum Step {
    /// A report with a sequence so much above (or below) the last.
    Beat(i8),
    /// What waits is planned; it is bound after so many further reports.
    Plan(u8),
    /// The transaction counts.
    Include,
    /// The transaction is dead.
    Expire,
    /// A new registration.
    Rotate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (-2i8..6).prop_map(Step::Beat),
        2 => (0u8..3).prop_map(Step::Plan),
        2 => Just(Step::Include),
        2 => Just(Step::Expire),
        1 => Just(Step::Rotate),
    ];
    prop::collection::vec(step, 1..40)
}

pub(super) fn report(epoch: u64, sequence: u32, at: u64) -> Accept {
    let of = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
    let mut signed = [1; 70];
    signed[4..8].copy_from_slice(&sequence.to_be_bytes());
    Accept {
        section: vec![3],
        section_digest: [4; 16],
        full: Some(sequence.to_be_bytes().to_vec()),
        ..Accept::new(of, (epoch, sequence), (signed, [2; 64]), at)
    }
}

struct Model {
    store: Store,
    epoch: u64,
    last: u32,
    now: u64,
    batch: Option<u64>,
    accepted: BTreeSet<(u64, u32)>,
}

impl Model {
    async fn beat(&mut self, by: i8) {
        let sequence = self.last.saturating_add_signed(i32::from(by)).max(1);
        self.now += 1;
        let mut tx = self.store.begin().await.unwrap();
        let got = accept(&mut tx, &report(self.epoch, sequence, self.now))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(
            got.accepted,
            sequence > self.last,
            "sequences rise within an epoch"
        );
        if got.accepted {
            self.last = sequence;
            self.accepted.insert((self.epoch, sequence));
        }
        assert_eq!(got.sequence_ack, self.last);
    }

    async fn plan(&mut self, then: u8) {
        if self.batch.is_some() {
            return;
        }
        let mut conn = self.store.reader().acquire().await.unwrap();
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
        let found = waiting_of(&mut conn, &[(&cluster, &node)]).await.unwrap();
        let Some((member, _)) = found.rows.into_iter().next() else {
            return;
        };
        drop(conn);
        for _ in 0..then {
            self.beat(1).await;
        }
        let mut tx = self.store.begin().await.unwrap();
        let row = db::query(
            "INSERT INTO batch (signer, kind, hash, created_at) VALUES ('s', 'reports', 'H', 0) RETURNING id",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        let batch = u64::try_from(row.get::<i64, _>(0)).unwrap();
        bind(&mut tx, batch, &[member]).await.unwrap();
        tx.commit().await.unwrap();
        self.batch = Some(batch);
    }

    async fn finish(&mut self, included: bool) {
        let Some(batch) = self.batch.take() else { return };
        let mut tx = self.store.begin().await.unwrap();
        for m in members(&mut tx, batch).await.unwrap() {
            if included {
                let ended = End {
                    ended: EndedAs::OnChain,
                    code: None,
                    batch: Some(batch),
                    height: Some(1),
                };
                end(&mut tx, &m, &ended, self.now).await.unwrap();
            } else {
                return_member(&mut tx, &m, self.now).await.unwrap();
            }
        }
        unbind(&mut tx, batch).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn rotate(&mut self) {
        self.epoch += 1;
        self.last = 0;
        let mut tx = self.store.begin().await.unwrap();
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
        supersede_older(&mut tx, &cluster, &node, self.epoch, self.now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Each accepted report waits, is bound, or has ended: itself, or within the range of one that replaced it.
    async fn check(&self) {
        let rows = db::query(
            "SELECT epoch, sequence, superseded_from, superseded_count FROM report_end
             UNION ALL SELECT epoch, sequence, superseded_from, superseded_count FROM waiting
             UNION ALL SELECT epoch, sequence, superseded_from, superseded_count FROM batch_report WHERE recorded = 0",
        )
        .fetch_all(self.store.reader())
        .await
        .unwrap();
        let (mut count, mut seen, mut ranges) = (0, BTreeSet::new(), Vec::new());
        for row in rows {
            let (epoch, sequence): (i64, i64) = (row.get(0), row.get(1));
            let from: i64 = row.get::<Option<i64>, _>(2).unwrap_or(sequence);
            assert!(
                seen.insert((epoch, sequence)),
                "epoch {epoch}, sequence {sequence} has two records"
            );
            ranges.push((epoch, from, sequence));
            count += 1 + row.get::<i64, _>(3);
        }
        for (epoch, sequence) in &self.accepted {
            let (e, s) = (i64::try_from(*epoch).unwrap(), i64::from(*sequence));
            let covered = ranges
                .iter()
                .any(|(epoch, from, to)| *epoch == e && (*from..=*to).contains(&s));
            assert!(
                covered,
                "epoch {e}, sequence {s} was accepted and is on no record"
            );
        }
        assert_eq!(
            count,
            i64::try_from(self.accepted.len()).unwrap(),
            "each is counted once"
        );
        let waiting = depth(self.store.reader()).await.unwrap().waiting;
        assert!(waiting <= 1, "the queue is bounded by nodes");
        self.check_heartbeats().await;
    }

    /// The heartbeat itself is there of each report that waits, is bound or came on chain, and of no other.
    async fn check_heartbeats(&self) {
        let set = async |sql: &'static str| {
            let rows = db::query(sql).fetch_all(self.store.reader()).await.unwrap();
            let entry = |row: &Row| {
                let sequence: i64 = row.get(1);
                let heartbeat: Option<Vec<u8>> = row.try_get("heartbeat").unwrap_or(None);
                if let Some(bytes) = heartbeat {
                    assert_eq!(i64::from(u32::from_be_bytes(bytes.try_into().unwrap())), sequence);
                }
                (row.get::<i64, _>(0), sequence)
            };
            rows.iter().map(entry).collect::<BTreeSet<_>>()
        };
        assert_eq!(
            set("SELECT epoch, sequence, heartbeat FROM heartbeat").await,
            set("SELECT epoch, sequence FROM report_end WHERE ended = 'on_chain'
                 UNION SELECT epoch, sequence FROM batch_report WHERE recorded = 0")
            .await
        );
        assert_eq!(
            set("SELECT epoch, sequence, heartbeat FROM waiting WHERE heartbeat IS NOT NULL").await,
            set("SELECT epoch, sequence FROM waiting").await
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn every_accepted_report_is_accounted_for_exactly_once(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::for_test(&dir.path().join("p.db")).await;
            let mut model = Model {
                store, epoch: 1, last: 0, now: 1, batch: None, accepted: BTreeSet::new(),
            };
            for step in steps {
                match step {
                    Step::Beat(by) => model.beat(by).await,
                    Step::Plan(then) => model.plan(then).await,
                    Step::Include => model.finish(true).await,
                    Step::Expire => model.finish(false).await,
                    Step::Rotate => model.rotate().await,
                }
                model.check().await;
            }
            model.store.close().await;
        });
    }
}

#[tokio::test]
async fn what_the_writer_acknowledged_is_there_after_another_opening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.db");
    let store = Store::for_test(&path).await;
    let log = Log::open(&store).await.unwrap();
    let (spool, task) = Spool::start(store.clone(), log, std::sync::Arc::default());
    let many: Vec<_> = (1..=200u32)
        .map(|i| {
            let (spool, node) = (spool.clone(), format!("node-{i:04}"));
            tokio::spawn(async move {
                let accept = Accept {
                    node_id: node.parse().unwrap(),
                    ..report(1, i, 5)
                };
                spool.accept(accept).await.unwrap()
            })
        })
        .collect();
    for one in many {
        assert!(one.await.unwrap().accepted);
    }
    drop(spool);
    task.await.unwrap();
    store.close().await;
    let store = Store::for_test(&path).await;
    assert_eq!(depth(store.reader()).await.unwrap().waiting, 200);
}

/// Everything that both tables hold.
pub(super) async fn rows(store: &Store) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "SELECT cluster_id || '/' || node_id || '/' || epoch || '/' || acked_sequence || '/' || highest_sequence || '/'
         || received_at AS text, section, section_digest FROM intake ORDER BY cluster_id, node_id",
        "SELECT cluster_id || '/' || node_id || '/' || epoch || '/' || sequence || '/' || queued_at || '/' || received_at
         || '/' || coalesce(superseded_from, -1) || '/' || superseded_count AS text, report, signature
         FROM waiting ORDER BY cluster_id, node_id",
        "SELECT 'its heartbeat' AS text, heartbeat, heartbeat FROM waiting ORDER BY cluster_id, node_id",
        "SELECT node_id || '/' || epoch || '/' || sequence || '/' || ended || '/' || superseded_count AS text, NULL, NULL
         FROM report_end ORDER BY id",
    ] {
        let found = db::query(sql).fetch_all(store.reader()).await.unwrap();
        let bytes = |row: &Row, at: usize| row.try_get::<Option<Vec<u8>>, _>(at).ok();
        all.extend(found.iter().map(|row| {
            let text: String = row.get(0);
            format!("{text} {:?} {:?}", bytes(row, 1), bytes(row, 2))
        }));
    }
    all
}

pub(super) fn groups() -> impl Strategy<Value = Vec<Vec<Accept>>> {
    let one = (0u8..6, 1u64..3, 1u32..9).prop_map(|(node, epoch, sequence)| Accept {
        node_id: format!("node-000{node}").parse().unwrap(),
        section: vec![u8::try_from(sequence).unwrap()],
        section_digest: [u8::try_from(sequence).unwrap(); 16],
        ..report(epoch, sequence, u64::from(sequence) + 10 * epoch)
    });
    // Groups that are all news are likely enough where nodes are many and groups small.
    prop::collection::vec(prop::collection::vec(one, 1..7), 1..12)
}

proptest! {
    #[test]
    fn a_group_together_leaves_what_its_reports_one_by_one_would(groups in groups()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let together = Store::for_test(&one.path().join("p.db")).await;
            let singly = Store::for_test(&other.path().join("p.db")).await;
            for group in &groups {
                let answers = super::writer::commit(&together, group).await.unwrap();
                let mut tx = singly.begin().await.unwrap();
                let mut expected = Vec::new();
                for report in group {
                    expected.push(accept(&mut tx, report).await.unwrap());
                }
                tx.commit().await.unwrap();
                assert_eq!(answers, expected);
            }
            assert_eq!(rows(&together).await, rows(&singly).await);
            together.close().await;
            singly.close().await;
        });
    }
}

#[tokio::test]
async fn a_group_of_any_size_is_taken_in_whole_and_one_that_is_no_news_counts_for_itself() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let together = Store::for_test(&one.path().join("p.db")).await;
    let singly = Store::for_test(&other.path().join("p.db")).await;
    for (first, size) in (10u32..).step_by(10).zip([1u32, 15, 16, 17, 32, 33, 90, 200]) {
        // All are news; then all but the last.
        for sequence in [first, first + 1] {
            let group: Vec<Accept> = (0..size)
                .map(|n| Accept {
                    node_id: format!("node-{n:04}").parse().unwrap(),
                    section: n.to_be_bytes().to_vec(),
                    ..report(1, if n + 1 < size { sequence } else { first }, 10)
                })
                .collect();
            let answers = super::writer::commit(&together, &group).await.unwrap();
            let mut tx = singly.begin().await.unwrap();
            let mut expected = Vec::new();
            for report in &group {
                expected.push(accept(&mut tx, report).await.unwrap());
            }
            tx.commit().await.unwrap();
            assert_eq!(answers, expected, "{size}");
            let old = answers.iter().filter(|a| !a.accepted).count();
            assert_eq!(old, usize::from(sequence > first), "{size}");
        }
        assert_eq!(rows(&together).await, rows(&singly).await, "{size}");
    }
    together.close().await;
    singly.close().await;
}

/// Like [`bind`], one report after the other.
async fn bind_singly(conn: &mut Conn, batch: i64, members: &[Member]) {
    for (item, m) in (0i64..).zip(members) {
        let removed = db::query(
            "DELETE FROM waiting WHERE cluster_id = ? AND node_id = ? AND epoch = ? AND sequence = ?",
        )
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .bind(i64::try_from(m.epoch).unwrap())
        .bind(i64::from(m.sequence))
        .execute(&mut *conn)
        .await
        .unwrap();
        let recorded = removed.rows_affected() == 0 && !super::bind::uncount(conn, m).await.unwrap();
        db::query(
            "INSERT INTO batch_report (batch_id, item, cluster_id, node_id, epoch, sequence, report, signature,
             queued_at, received_at, superseded_from, superseded_count, recorded)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(batch)
        .bind(item)
        .bind(m.cluster_id.as_str())
        .bind(m.node_id.as_str())
        .bind(i64::try_from(m.epoch).unwrap())
        .bind(i64::from(m.sequence))
        .bind(m.report.as_slice())
        .bind(m.signature.as_slice())
        .bind(i64::try_from(m.queued_at).unwrap())
        .bind(i64::try_from(m.received_at).unwrap())
        .bind(m.superseded_from.map(i64::from))
        .bind(i64::try_from(m.superseded_count).unwrap())
        .bind(recorded)
        .execute(&mut *conn)
        .await
        .unwrap();
        if let (Some(full), false) = (&m.full, recorded) {
            prove::keep(&mut *conn, m.which(), full, m.received_at)
                .await
                .unwrap();
        }
    }
}

/// What a transaction has left.
async fn left(store: &Store) -> Vec<String> {
    let mut all = rows(store).await;
    for sql in [
        "SELECT batch_id || '/' || item || '/' || node_id || '/' || epoch || '/' || sequence || '/' || queued_at || '/'
         || received_at || '/' || coalesce(superseded_from, -1) || '/' || superseded_count || '/' || recorded AS text,
         report, signature FROM batch_report ORDER BY batch_id, item",
        "SELECT node_id || '/' || epoch || '/' || sequence || '/' || received_at || '/' || coalesce(tx, '-') AS text,
         heartbeat, heartbeat FROM heartbeat ORDER BY node_id, epoch, sequence",
        "SELECT tx || '/' || coalesce(evidence, '-') || '/' || asked_at AS text, NULL, NULL FROM evidence ORDER BY tx",
        "SELECT node_id || '/' || epoch || '/' || sequence || '/' || coalesce(batch_id, -1) || '/' || coalesce(height, -1)
         || '/' || coalesce(code, -1) || '/' || ended_at AS text, NULL, NULL FROM report_end ORDER BY id",
    ] {
        let found = db::query(sql).fetch_all(store.reader()).await.unwrap();
        let bytes = |row: &Row, at: usize| row.try_get::<Option<Vec<u8>>, _>(at).ok();
        all.extend(found.iter().map(|row| {
            let text: String = row.get(0);
            format!("{text} {:?} {:?}", bytes(row, 1), bytes(row, 2))
        }));
    }
    all
}

async fn batch(store: &Store, hash: &str) -> u64 {
    let mut tx = store.begin().await.unwrap();
    let row = db::query(
        "INSERT INTO batch (signer, kind, hash, created_at) VALUES ('s', 'reports', ?, 0) RETURNING id",
    )
    .bind(hash)
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    u64::try_from(row.get::<i64, _>(0)).unwrap()
}

async fn take_in(store: &Store, nodes: &[u8], epoch: u64, sequence: u32, kept: bool) {
    let mut tx = store.begin().await.unwrap();
    for node in nodes {
        let new = Accept {
            node_id: format!("node-{node:04}").parse().unwrap(),
            full: kept.then(|| vec![*node, 7]),
            ..report(epoch, sequence, u64::from(sequence))
        };
        accept(&mut tx, &new).await.unwrap();
    }
    tx.commit().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_transaction_of_many_is_bound_and_ends_as_its_reports_one_by_one_would(
        count in 1u8..90, replaced in prop::collection::btree_set(0u8..90, 0..5),
        rotated in prop::collection::btree_set(0u8..90, 0..5), kept in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let together = Store::for_test(&one.path().join("p.db")).await;
            let singly = Store::for_test(&other.path().join("p.db")).await;
            let nodes: Vec<u8> = (0..count).collect();
            for store in [&together, &singly] {
                take_in(store, &nodes, 1, 5, kept).await;
                let planned = waiting_members(store).await;
                let batch = batch(store, "H").await;
                // Newer reports and registrations come while the transaction is being signed.
                let some = |of: &BTreeSet<u8>| of.iter().copied().filter(|n| *n < count).collect::<Vec<_>>();
                take_in(store, &some(&replaced), 1, 6, kept).await;
                let mut tx = store.begin().await.unwrap();
                for node in some(&rotated) {
                    let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), format!("node-{node:04}").parse().unwrap());
                    supersede_older(&mut tx, &cluster, &node, 2, 9).await.unwrap();
                }
                if std::ptr::eq(store, &together) {
                    bind(&mut tx, batch, &planned).await.unwrap();
                } else {
                    bind_singly(&mut tx, i64::try_from(batch).unwrap(), &planned).await;
                }
                tx.commit().await.unwrap();
            }
            assert_eq!(left(&together).await, left(&singly).await);
            let mut tx = together.begin().await.unwrap();
            end_bound_on_chain(&mut tx, 1, 77, 10).await.unwrap();
            tx.commit().await.unwrap();
            let mut tx = singly.begin().await.unwrap();
            let ended = End { ended: EndedAs::OnChain, code: None, batch: Some(1), height: Some(77) };
            for m in members(&mut tx, 1).await.unwrap() {
                end(&mut tx, &m, &ended, 10).await.unwrap();
            }
            tx.commit().await.unwrap();
            assert_eq!(left(&together).await, left(&singly).await);
            together.close().await;
            singly.close().await;
        });
    }
}

async fn waiting_members(store: &Store) -> Vec<Member> {
    let mut conn = store.reader().acquire().await.unwrap();
    let metas = metas(store.reader()).await.unwrap().rows;
    let nodes: Vec<_> = metas.iter().map(|m| (&m.cluster_id, &m.node_id)).collect();
    let found = waiting_of(&mut conn, &nodes).await.unwrap();
    let mut all: Vec<Member> = found.rows.into_iter().map(|(member, _)| member).collect();
    assert_eq!(all.len(), metas.len());
    all.sort_by(|a, b| (&a.cluster_id, &a.node_id).cmp(&(&b.cluster_id, &b.node_id)));
    all
}
