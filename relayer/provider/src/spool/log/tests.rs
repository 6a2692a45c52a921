use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::time::{sleep, timeout};

use super::super::accept::accept;
use super::super::tests::{groups, report, rows};
use super::super::{Spool, depth, ends_of, forget_gone, intakes, metas, supersede_older};
use super::*;

async fn open(path: &std::path::Path) -> (Store, Log) {
    let store = Store::open(path).await.unwrap();
    let log = Log::open(&store).await.unwrap().unwrap();
    (store, log)
}

#[tokio::test]
async fn what_is_accepted_while_the_database_cannot_be_written_is_in_it_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.db");
    let (store, log) = open(&path).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    assert_eq!(spool.behind(), Duration::ZERO);
    // Somebody else writes, and does not end.
    let held = store.begin().await.unwrap();
    for sequence in [4, 5, 9] {
        let answer = spool
            .accept(report(1, sequence, u64::from(sequence)))
            .await
            .unwrap();
        assert!(answer.accepted);
    }
    let again = spool.accept(report(1, 9, 10)).await.unwrap();
    assert_eq!(
        again,
        Accepted {
            accepted: false,
            sequence_ack: 9
        }
    );
    assert_eq!(depth(store.reader()).await.unwrap().waiting, 0);
    // By then a transaction has them that does not begin.
    sleep(Duration::from_millis(100)).await;
    assert!(
        spool.behind() >= Duration::from_millis(100),
        "{:?}",
        spool.behind()
    );
    // A copy that is made now has it too.
    let copied = tempfile::tempdir().unwrap();
    std::fs::write(
        copied.path().join(journal::NAME),
        unapplied(&store).await.unwrap(),
    )
    .unwrap();
    task.abort();
    drop(task.await);
    drop(held);
    store.copy_to(&copied.path().join("p.db")).await.unwrap();
    store.close().await;
    for path in [path, copied.path().join("p.db")] {
        for _start in 0..2 {
            let (store, log) = open(&path).await;
            let intake = intakes(store.reader()).await.unwrap().pop().unwrap();
            assert_eq!((intake.acked_sequence, intake.highest_sequence), (9, 9));
            let text: String = db_text(&store).await;
            assert_eq!(text, "9/4/2/4", "sequence, since which, how many, since when");
            drop(log);
            store.close().await;
        }
    }
}

async fn db_text(store: &Store) -> String {
    let sql = "SELECT sequence || '/' || superseded_from || '/' || superseded_count || '/' || queued_at AS text FROM waiting";
    let row = crate::db::query(sql).fetch_one(store.reader()).await.unwrap();
    row.try_get("text").unwrap()
}

#[tokio::test]
async fn a_report_of_a_registration_that_ended_before_the_database_had_it_ends_on_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.db");
    let (store, log) = open(&path).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    let mut tx = store.begin().await.unwrap();
    let of = report(1, 4, 7);
    assert!(spool.accept(report(1, 4, 7)).await.unwrap().accepted);
    accept(&mut tx, &report(2, 1, 8)).await.unwrap();
    supersede_older(&mut tx, &of.cluster_id, &of.node_id, 2, 8)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let ends = timeout(Duration::from_secs(20), async {
        loop {
            let ends = ends_of(store.reader(), &of.cluster_id, &of.node_id, 9)
                .await
                .unwrap();
            if !ends.is_empty() {
                return ends;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let ends = ends.await.unwrap();
    assert_eq!(
        (
            ends.len(),
            ends[0].epoch,
            ends[0].sequence,
            ends[0].ended.as_str()
        ),
        (1, 1, 4, "superseded")
    );
    drop(spool);
    task.await.unwrap();
    // A start takes nothing in twice.
    store.close().await;
    let (store, _log) = open(&path).await;
    assert_eq!(
        ends_of(store.reader(), &of.cluster_id, &of.node_id, 9)
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn damage(store: &Store, sql: &'static str) {
    let mut tx = store.begin().await.unwrap();
    let done = crate::db::query(sql).execute(&mut *tx).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_row_that_cannot_be_read_keeps_no_other_node_out() {
    let dir = tempfile::tempdir().unwrap();
    let (store, log) = open(&dir.path().join("p.db")).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    let of = |node: u32, sequence: u32| Accept {
        node_id: format!("node-{node:04}").parse().unwrap(),
        ..report(1, sequence, u64::from(sequence))
    };
    let until = async |reports: u64| {
        let taken_in = async {
            while depth(store.reader()).await.unwrap().waiting < reports || !spool.behind().is_zero() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(20), taken_in).await.unwrap();
    };
    for node in [1, 2] {
        assert!(spool.accept(of(node, 4)).await.unwrap().accepted);
    }
    until(2).await;
    assert_eq!(spool.mended(), None);
    for sql in [
        "UPDATE waiting SET epoch = -1 WHERE node_id = 'node-0001'",
        "UPDATE intake SET acked_sequence = 5000000000 WHERE node_id = 'node-0002'",
    ] {
        damage(&store, sql).await;
    }
    for node in [1, 2, 3] {
        assert!(spool.accept(of(node, 5)).await.unwrap().accepted);
    }
    until(3).await;
    let what = spool.mended().unwrap();
    assert!(what.contains("hpc-cluster-1"), "{what}");
    drop(spool);
    task.await.unwrap();
    let acked: Vec<u32> = intakes(store.reader())
        .await
        .unwrap()
        .iter()
        .map(|i| i.acked_sequence)
        .collect();
    assert_eq!(acked, [5, 5, 5]);
}

#[tokio::test]
async fn a_start_takes_in_what_the_journal_holds_of_a_node_whose_row_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.db");
    let (store, log) = open(&path).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    assert!(spool.accept(report(1, 4, 7)).await.unwrap().accepted);
    drop(spool);
    task.await.unwrap();
    let log = Log::open(&store).await.unwrap();
    let (spool, task) = Spool::start(store.clone(), log, Arc::default());
    let held = store.begin().await.unwrap();
    assert!(spool.accept(report(1, 5, 8)).await.unwrap().accepted);
    task.abort();
    drop((spool, task.await));
    drop(held);
    damage(&store, "UPDATE waiting SET epoch = -1").await;
    store.close().await;
    let (store, log) = open(&path).await;
    let waits = metas(store.reader()).await.unwrap().rows;
    assert_eq!((waits.len(), waits[0].epoch, waits[0].sequence), (1, 1, 5));
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    let said = timeout(Duration::from_secs(20), async {
        loop {
            match spool.mended() {
                Some(what) => return what,
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let said = said.await.unwrap();
    assert!(said.contains("waiting.epoch"), "{said}");
    drop(spool);
    task.await.unwrap();
}

#[tokio::test]
async fn a_start_mends_the_rows_of_nodes_of_which_nothing_comes_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.db");
    let (store, log) = open(&path).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    let of = |node: u32| Accept {
        node_id: format!("node-{node:04}").parse().unwrap(),
        ..report(1, 4, 7)
    };
    for node in 1..=4 {
        assert!(spool.accept(of(node)).await.unwrap().accepted);
    }
    drop(spool);
    task.await.unwrap();
    for sql in [
        "UPDATE waiting SET queued_at = -1 WHERE node_id = 'node-0001'",
        "UPDATE waiting SET report = x'02' WHERE node_id = 'node-0002'",
        "UPDATE intake SET highest_sequence = -1 WHERE node_id = 'node-0003'",
    ] {
        damage(&store, sql).await;
    }
    // What holds for one is asked of all.
    let asked = depth(store.reader()).await.unwrap();
    assert_eq!((asked.waiting, asked.oldest), (4, Some(7)));
    store.close().await;
    let (store, log) = open(&path).await;
    let said = log.mended.clone().unwrap();
    assert!(said.contains("node-000"), "{said}");
    let waits = metas(store.reader()).await.unwrap();
    let names: Vec<_> = waits.rows.iter().map(|m| m.node_id.as_str()).collect();
    assert_eq!(names, ["node-0001", "node-0003", "node-0004"]);
    assert!(!waits.broken);
    let since: Vec<_> = waits.rows.iter().map(|m| m.queued_at).collect();
    assert_eq!(since, [7, 7, 7]);
    let intakes = intakes(store.reader()).await.unwrap();
    assert!(
        intakes
            .iter()
            .all(|i| (i.acked_sequence, i.highest_sequence) == (4, 4))
    );
    assert_eq!(intakes.len(), 4);
    drop(log);
    store.close().await;
    let (_, log) = open(&path).await;
    assert_eq!(log.mended, None, "once");
}

#[tokio::test]
async fn a_group_that_the_disk_did_not_take_is_refused_and_may_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join(journal::NAME);
    std::os::unix::fs::symlink("/dev/full", &first).unwrap();
    let (store, log) = open(&dir.path().join("p.db")).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    // One group: the second is not above the first, and what is undone is undone from the last on.
    let group = [5, 3, 6].map(|sequence| spool.accept(report(1, sequence, 7)));
    for refused in join_all(group).await {
        refused.unwrap_err();
    }
    std::fs::remove_file(&first).unwrap();
    assert!(spool.accept(report(1, 4, 7)).await.unwrap().accepted);
    drop(spool);
    task.await.unwrap();
    assert_eq!(depth(store.reader()).await.unwrap().waiting, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn by_the_journal_the_database_ends_as_if_it_had_been_asked_each_time(
        groups in groups(),
        then in prop::collection::vec((0u64..30, prop::bool::weighted(0.25), prop::bool::weighted(0.2)), 12)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let path = one.path().join("p.db");
            let (mut store, log) = open(&path).await;
            let singly = Store::open(&other.path().join("p.db")).await.unwrap();
            let (mut spool, mut task) = Spool::start(store.clone(), Some(log), Arc::default());
            for (group, (millis, kill, hold)) in groups.iter().zip(then) {
                // More nodes than one transaction takes in, all of them older ones of the same group.
                let others = (0..20).map(|n| Accept {
                    node_id: format!("node-1{n:03}").parse().unwrap(),
                    ..report(1, 1, 1)
                });
                let all: Vec<Accept> = others.chain(group.iter().cloned()).collect();
                let held = if hold { Some(store.begin().await.unwrap()) } else { None };
                let answers = join_all(all.iter().map(|r| spool.accept(r.clone()))).await;
                let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
                sleep(Duration::from_millis(millis)).await;
                drop(held);
                if kill {
                    task.abort();
                    drop((spool, task.await));
                    store.close().await;
                    let log;
                    (store, log) = open(&path).await;
                    (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
                }
                let mut tx = singly.begin().await.unwrap();
                let mut expected = Vec::new();
                for report in &all {
                    expected.push(accept(&mut tx, report).await.unwrap());
                }
                tx.commit().await.unwrap();
                assert_eq!(answers, expected);
            }
            drop(spool);
            task.await.unwrap();
            // Of several nodes those that end at once may be noted in another order.
            let (mut one, mut other) = (rows(&store).await, rows(&singly).await);
            one.sort();
            other.sort();
            assert_eq!(one, other);
            store.close().await;
            singly.close().await;
        });
    }
}

#[tokio::test]
async fn memory_forgets_a_node_that_is_gone_and_not_one_that_has_registered_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, mut log) = open(&dir.path().join("p.db")).await;
    let gone = |epoch| {
        let of = report(epoch, 1, 1);
        Gone {
            cluster_id: of.cluster_id,
            node_id: of.node_id,
            epoch,
        }
    };
    log.judge(&[report(1, 4, 7), report(2, 1, 8)].map(Box::new));
    log.forget(&gone(1));
    assert_eq!(log.newest.len(), 1);
    log.forget(&gone(2));
    assert!(log.newest.is_empty());
}

#[tokio::test]
async fn what_the_store_forgets_of_a_node_that_is_gone_the_writer_of_the_journal_does_not_remember() {
    let dir = tempfile::tempdir().unwrap();
    let (store, log) = open(&dir.path().join("p.db")).await;
    let (spool, task) = Spool::start(store.clone(), Some(log), Arc::default());
    assert!(spool.accept(report(1, 9, 7)).await.unwrap().accepted);
    assert!(!spool.accept(report(1, 4, 8)).await.unwrap().accepted);
    let there = timeout(Duration::from_secs(20), async {
        while depth(store.reader()).await.unwrap().waiting == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    });
    there.await.unwrap();
    let mut tx = store.begin().await.unwrap();
    crate::db::query("DELETE FROM waiting")
        .execute(&mut *tx)
        .await
        .unwrap();
    let gone = forget_gone(&mut tx, 100).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(gone.len(), 1);
    spool.forget(gone);
    assert!(spool.accept(report(1, 4, 8)).await.unwrap().accepted);
    drop(spool);
    task.await.unwrap();
    let left = intakes(store.reader()).await.unwrap();
    assert_eq!((left.len(), left[0].acked_sequence), (1, 4));
}
