use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::task::{TaskResult, TaskState, TaskType, WaitAnswer};
use hpc_schema::time::UnixSeconds;
use serde_json::value::RawValue;

use super::*;
use crate::db::{self, Conn};
use crate::page::Window;
use crate::store::Store;

const SCOPE: (&str, &str) = ("hpc-1", "wasm1abc");
pub(super) const NOW: u64 = 1_769_781_900_000;

pub(super) fn of() -> (ClusterId, NodeId) {
    ("hpc-cluster-1".parse().unwrap(), "node-1".parse().unwrap())
}

pub(super) fn task(id: &str, kind: TaskType, params: &str) -> NewTask {
    let (cluster_id, node_id) = of();
    NewTask {
        task_id: id.parse().unwrap(),
        cluster_id,
        node_id,
        kind,
        params: RawValue::from_string(params.to_owned()).unwrap(),
        nonce: [1; 16],
        submitted_by: "root".into(),
        scheduled: false,
        issued_at: UnixSeconds(NOW / 1000),
        expires_at: UnixSeconds(NOW / 1000 + 60),
    }
}

pub(super) async fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::for_test(&dir.path().join("p.db")).await;
    (dir, store)
}

pub(super) async fn put(store: &Store, new: &NewTask) -> Submitted {
    let mut tx = store.begin().await.unwrap();
    let done = admitted(&mut tx, new).await;
    tx.commit().await.unwrap();
    done
}

/// On record where it can be, by the parts that the admin desk puts together.
pub(crate) async fn admitted(conn: &mut Conn, new: &NewTask) -> Submitted {
    let asked = ask_room(&new.cluster_id, &new.node_id, &new.task_id);
    let room = told_room(&asked.fetch_all(&mut *conn).await.unwrap()).unwrap();
    let (done, row) = admit(new.clone(), room, SCOPE, NOW).unwrap();
    if let (Submitted::Queued | Submitted::Held, Some(row)) = (done, &row) {
        record(row).execute(conn).await.unwrap();
    }
    done
}

/// Claimed for the node, by what the gateway asks.
pub(crate) async fn claimed(conn: &mut Conn, of: (&ClusterId, &NodeId), per_node: u32, now: u64) -> Claimed {
    let asked = ask_claim(of, per_node, 30_000, now).into();
    let [tasks, cancelled] = db::each(conn.together(asked).await.unwrap()).unwrap();
    told_claim(&tasks, &cancelled).unwrap()
}

/// A result, taken as the gateway takes it.
pub(super) async fn taken(conn: &mut Conn, id: &str, result: &TaskResult, key: &AgentKey) -> Taken {
    let ((cluster, node), id) = (of(), id.parse().unwrap());
    let asked = ask_task((&cluster, &node), &id);
    let row = told_task(&asked.fetch_all(&mut *conn).await.unwrap()).unwrap();
    let taken = judge(row.as_ref(), result, key, UnixSeconds(NOW / 1000));
    if let (Taken::Recorded, Some(row)) = (&taken, &row) {
        let last = ended(row, result, key, NOW).unwrap();
        last.execute(conn).await.unwrap();
    }
    taken
}

pub(super) async fn take(store: &Store, per_node: u32, now: u64) -> Vec<(String, u64)> {
    let (cluster, node) = of();
    let mut tx = store.begin().await.unwrap();
    let claimed = claimed(&mut tx, (&cluster, &node), per_node, now).await;
    tx.commit().await.unwrap();
    claimed
        .tasks
        .iter()
        .map(|t| (t.task_id.to_string(), t.attempts))
        .collect()
}

#[tokio::test]
async fn tasks_are_claimed_once_in_order_and_no_more_than_the_node_may_have() {
    let (_dir, store) = store().await;
    for id in ["t001", "t002", "t003"] {
        assert_eq!(
            put(&store, &task(id, TaskType::DiagHealthProbe, "{}")).await,
            Submitted::Queued
        );
    }
    assert_eq!(
        put(&store, &task("t001", TaskType::DiagHealthProbe, "{}")).await,
        Submitted::Known
    );
    let other = task("t001", TaskType::DiagHealthProbe, r#"{"checks":["gpu"]}"#);
    assert_eq!(put(&store, &other).await, Submitted::Taken);
    assert_eq!(
        take(&store, 2, NOW).await,
        [("t001".into(), 1), ("t002".into(), 1)]
    );
    assert!(take(&store, 2, NOW).await.is_empty());
    // The leases are over: the same again, and not the third.
    assert_eq!(
        take(&store, 2, NOW + 30_000).await,
        [("t001".into(), 2), ("t002".into(), 2)]
    );
    // Not delivered in time: expired. Delivered ones wait for the node's word.
    let mut tx = store.begin().await.unwrap();
    let swept = keep(&mut tx, NOW + 61_000).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        swept,
        Swept {
            expired: 1,
            unknown: 0
        }
    );
    let rows = history(store.reader(), None, Some(TaskState::Expired), Window::default())
        .await
        .unwrap();
    assert_eq!(rows.items[0].task_id.as_str(), "t003");
    // For longer than any such task may run nothing is heard.
    let mut tx = store.begin().await.unwrap();
    let swept = keep(&mut tx, NOW + 24 * 3600 * 1000).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(swept.unknown, 2);
    let rows = history(store.reader(), None, Some(TaskState::Failed), Window::default())
        .await
        .unwrap();
    assert!(
        rows.items
            .iter()
            .all(|r| r.code.as_deref() == Some("outcome_unknown"))
    );
}

#[tokio::test]
async fn a_task_that_needs_approval_is_not_delivered_before_and_cancelled_ones_never() {
    let (_dir, store) = store().await;
    let new = task(
        "t001",
        TaskType::NodePrerequisitesInstall,
        r#"{"packages":["qemu-utils"]}"#,
    );
    assert_eq!(put(&store, &new).await, Submitted::Held);
    assert!(take(&store, 4, NOW).await.is_empty());
    let mut tx = store.begin().await.unwrap();
    assert!(
        approve(&mut tx, &new.cluster_id, &new.task_id, "anna")
            .await
            .unwrap()
    );
    assert!(
        !approve(&mut tx, &new.cluster_id, &new.task_id, "anna")
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    assert_eq!(take(&store, 4, NOW).await.len(), 1);
    let new = task("t002", TaskType::DiagHealthProbe, "{}");
    put(&store, &new).await;
    let mut tx = store.begin().await.unwrap();
    let state = cancel(&mut tx, &new.cluster_id, &new.task_id, "anna", NOW)
        .await
        .unwrap();
    assert_eq!(state, Some(TaskState::Cancelled));
    assert_eq!(
        cancel(&mut tx, &new.cluster_id, &new.task_id, "anna", NOW)
            .await
            .unwrap(),
        None
    );
    tx.commit().await.unwrap();
    assert!(take(&store, 4, NOW).await.is_empty());
}

#[tokio::test]
async fn the_newest_wait_counts_and_a_wake_up_before_the_wait_is_not_lost() {
    let waiters = Arc::new(Waiters::default());
    let (cluster, node) = of();
    assert!(!waiters.wake(&cluster, &node));
    let first = waiters.park(&cluster, &node);
    assert!(waiters.wake(&cluster, &node));
    assert!(matches!(first.woken().await, Woken::Look));
    let second = waiters.park(&cluster, &node);
    assert!(matches!(first.woken().await, Woken::Superseded));
    drop(first);
    assert_eq!(waiters.count(), 1, "the older one's end is not the newer one's");
    assert!(second.is_newest());
    drop(second);
    assert_eq!(waiters.count(), 0);
}

#[tokio::test]
async fn what_is_given_to_a_node_goes_to_its_newest_wait_once() {
    let waiters = Arc::new(Waiters::default());
    let (cluster, node) = of();
    let of = (&cluster, &node);
    let word = || WaitAnswer {
        tasks: Vec::new(),
        cancel: Vec::new(),
        task_keys: Vec::new(),
    };
    assert!(!waiters.waits(of.0, of.1) && !waiters.give(of.0, of.1, word()).await);
    let first = waiters.park(of.0, of.1);
    assert!(first.given().is_none() && waiters.waits(of.0, of.1));
    let (given, ()) = tokio::join!(waiters.give(of.0, of.1, word()), async {
        // It has one already.
        assert!(!waiters.give(of.0, of.1, word()).await);
        // It has not looked yet, and another connection of the node waits: there it is.
        let second = waiters.park(of.0, of.1);
        let Woken::Given(given) = second.woken().await else {
            panic!("nothing was given");
        };
        assert!(matches!(first.woken().await, Woken::Superseded));
        assert!(first.given().is_none() && second.given().is_none());
        assert!(given.take().tasks.is_empty());
    });
    assert!(given);
    // Who waits goes without having looked, or has it and cannot send it.
    for looks in [false, true] {
        let third = waiters.park(of.0, of.1);
        let (given, ()) = tokio::join!(waiters.give(of.0, of.1, word()), async {
            let given = if looks { third.given() } else { None };
            assert_eq!(given.is_some(), looks);
            drop((given, third));
        });
        assert!(!given);
    }
    let _last = waiters.park(of.0, of.1);
    waiters.end();
    assert!(!waiters.waits(of.0, of.1) && !waiters.give(of.0, of.1, word()).await);
}

#[tokio::test]
async fn what_is_handed_over_with_its_submission_is_delivered_again_or_given_back() {
    let (_dir, store) = store().await;
    let new = task("t001", TaskType::DiagHealthProbe, "{}");
    let (cluster, node) = of();
    let mut tx = store.begin().await.unwrap();
    let asked = ask_room(&cluster, &node, &new.task_id);
    let room = told_room(&asked.fetch_all(&mut *tx).await.unwrap()).unwrap();
    assert!(room.is_empty());
    let (_, row) = admit(new.clone(), room, SCOPE, NOW).unwrap();
    let mut row = row.unwrap();
    row.dispatch(NOW, 30_000);
    record(&row).execute(&mut *tx).await.unwrap();
    let asked = ask_room(&cluster, &node, &new.task_id);
    let room = told_room(&asked.fetch_all(&mut *tx).await.unwrap()).unwrap();
    assert!(!room.is_empty());
    tx.commit().await.unwrap();
    assert!(take(&store, 4, NOW + 29_999).await.is_empty());
    // Nobody took it: it is as if it had never left the queue.
    let back = async || {
        let mut tx = store.begin().await.unwrap();
        let back = give_back(&mut tx, &cluster, &new.task_id).await.unwrap();
        tx.commit().await.unwrap();
        back
    };
    assert!(back().await && !back().await);
    assert_eq!(take(&store, 4, NOW + 10).await, [("t001".to_owned(), 1)]);
    // Its word was lost.
    assert!(take(&store, 4, NOW + 30_009).await.is_empty());
    assert_eq!(take(&store, 4, NOW + 30_010).await, [("t001".to_owned(), 2)]);
    assert!(!back().await, "another connection has it");
}
