use hpc_schema::command::{
    Acknowledgement, AcknowledgementStatus, CommandScope, CommandType, MAX_ACKNOWLEDGEMENT_REPORT,
    verify_command,
};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::time::UnixSeconds;

use super::write::put;
use super::*;
use crate::identity::Seed;
use crate::page::Window;
use crate::store::Store;

fn order(id: &str, kind: CommandType) -> NewCommand {
    NewCommand {
        command_id: id.to_owned(),
        cluster_id: "hpc-cluster-1".parse().unwrap(),
        node_id: "node-0001".parse().unwrap(),
        kind,
        parameters: "{}".to_owned(),
        nonce: [7; 16],
        issued_by: "alice".to_owned(),
        issued_at: UnixSeconds(1000),
        deadline: UnixSeconds(2000),
    }
}

fn ack(id: &str, status: AcknowledgementStatus) -> Acknowledgement {
    Acknowledgement {
        command_id: id.to_owned(),
        status,
        code: None,
        detail: Some("x\u{7}".repeat(300)),
        report: Some(r#"{"health":"healthy"}"#.to_owned()),
    }
}

async fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::for_test(&dir.path().join("p.db")).await;
    (dir, store)
}

#[tokio::test]
async fn an_acknowledged_order_is_told_no_more_and_stays_on_record() {
    let (_dir, store) = store().await;
    let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
    let other = "node-0002".parse().unwrap();
    let mut tx = store.begin().await.unwrap();
    assert!(
        submit(&mut tx, &order("c1", CommandType::Shutdown))
            .await
            .unwrap()
    );
    let done = ack("c1", AcknowledgementStatus::Done);
    let now = UnixSeconds(1500);
    assert!(
        !acknowledge(&mut tx, &cluster, &other, &done, now).await.unwrap(),
        "another node's"
    );
    assert!(acknowledge(&mut tx, &cluster, &node, &done, now).await.unwrap());
    assert!(
        !acknowledge(&mut tx, &cluster, &node, &done, now).await.unwrap(),
        "once"
    );
    tx.commit().await.unwrap();
    assert!(pending(store.reader()).await.unwrap().is_empty());
    let row = find(store.reader(), "c1").await.unwrap().unwrap();
    assert_eq!((row.state, row.acknowledged_at), (CommandState::Done, Some(now)));
    assert_eq!(row.detail.unwrap().len(), 256);
    assert_eq!(row.report.as_deref(), Some(r#"{"health":"healthy"}"#));
}

#[tokio::test]
async fn orders_of_the_same_second_are_told_as_they_were_given() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    let given = ["c9", "c1", "c5", "c0", "c7"];
    for id in given {
        submit(&mut tx, &order(id, CommandType::RunDiagnostic))
            .await
            .unwrap();
    }
    // Given once more, it keeps its place.
    submit(&mut tx, &order("c9", CommandType::RunDiagnostic))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let rows = pending(store.reader()).await.unwrap();
    let told: Vec<_> = rows.iter().map(|r| r.command_id.as_str()).collect();
    assert_eq!(told, given);
}

#[tokio::test]
async fn a_report_that_is_none_or_too_long_is_not_kept() {
    let (_dir, store) = store().await;
    let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
    let long = format!(r#"{{"x":"{}"}}"#, "y".repeat(MAX_ACKNOWLEDGEMENT_REPORT));
    for (id, report) in [("r1", "no JSON"), ("r2", "[]"), ("r3", &long)] {
        let mut tx = store.begin().await.unwrap();
        submit(&mut tx, &order(id, CommandType::RunDiagnostic))
            .await
            .unwrap();
        let ack = Acknowledgement {
            report: Some(report.to_owned()),
            ..ack(id, AcknowledgementStatus::Done)
        };
        assert!(
            acknowledge(&mut tx, &cluster, &node, &ack, UnixSeconds(1500))
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
        assert_eq!(
            find(store.reader(), id).await.unwrap().unwrap().report,
            None,
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_drain_takes_back_a_waiting_resume_and_a_deadline_ends_an_order() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    submit(&mut tx, &order("r", CommandType::Resume)).await.unwrap();
    submit(&mut tx, &order("d", CommandType::Drain)).await.unwrap();
    submit(&mut tx, &order("s", CommandType::RunDiagnostic))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let ids = |rows: Vec<CommandRow>| rows.into_iter().map(|r| r.command_id).collect::<Vec<_>>();
    assert_eq!(ids(pending(store.reader()).await.unwrap()), ["d", "s"]);
    let mut tx = store.begin().await.unwrap();
    assert_eq!(expire(&mut tx, UnixSeconds(2000)).await.unwrap(), 0);
    assert_eq!(expire(&mut tx, UnixSeconds(2001)).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(
        history(store.reader(), None, None, Window::default())
            .await
            .unwrap()
            .items
            .len(),
        3
    );
    let mut tx = store.begin().await.unwrap();
    prune(&mut tx, UnixSeconds(3000)).await.unwrap();
    tx.commit().await.unwrap();
    assert!(
        history(store.reader(), None, None, Window::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn the_orders_of_a_node_are_bounded() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    for i in 0..16 {
        assert!(
            submit(&mut tx, &order(&format!("c{i}"), CommandType::RunDiagnostic))
                .await
                .unwrap()
        );
    }
    assert!(
        !submit(&mut tx, &order("c16", CommandType::RunDiagnostic))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_drain_that_is_one_too_many_takes_nothing_back_and_one_of_the_chain_is_told_all_the_same() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    for i in 0..16 {
        let new = order(&format!("c{i}"), CommandType::RunDiagnostic);
        assert!(submit(&mut tx, &new).await.unwrap());
    }
    let of_chain = |id: &str, kind| NewCommand {
        issued_by: "chain".to_owned(),
        ..order(id, kind)
    };
    put(&mut tx, &of_chain("resume", CommandType::Resume))
        .await
        .unwrap();
    assert!(!submit(&mut tx, &order("d1", CommandType::Drain)).await.unwrap());
    tx.commit().await.unwrap();
    let waits = async |id: &str| {
        let rows = pending(store.reader()).await.unwrap();
        rows.iter().any(|r| r.command_id == id)
    };
    assert!(waits("resume").await && !waits("d1").await);
    let mut tx = store.begin().await.unwrap();
    put(&mut tx, &of_chain("drain", CommandType::Drain))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert!(waits("drain").await && !waits("resume").await);
    assert_eq!(pending(store.reader()).await.unwrap().len(), 17);
}

#[tokio::test]
async fn sixteen_orders_fit_beside_the_one_of_the_chain() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    let of_chain = NewCommand {
        issued_by: "chain".to_owned(),
        ..order("drain", CommandType::Drain)
    };
    put(&mut tx, &of_chain).await.unwrap();
    // Whatever an operator is called.
    for i in 0..16 {
        let new = NewCommand {
            issued_by: if i == 0 { "chain" } else { "alice" }.to_owned(),
            ..order(&format!("c{i}"), CommandType::RunDiagnostic)
        };
        assert!(submit(&mut tx, &new).await.unwrap(), "{i}");
    }
    let more = order("c16", CommandType::RunDiagnostic);
    assert!(!submit(&mut tx, &more).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(pending(store.reader()).await.unwrap().len(), 17);
}

#[tokio::test]
async fn a_drain_takes_the_place_of_the_resume_that_waits_among_sixteen() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    submit(&mut tx, &order("r", CommandType::Resume)).await.unwrap();
    for i in 1..16 {
        let new = order(&format!("c{i}"), CommandType::RunDiagnostic);
        assert!(submit(&mut tx, &new).await.unwrap());
    }
    assert!(submit(&mut tx, &order("d", CommandType::Drain)).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(pending(store.reader()).await.unwrap().len(), 16);
}

#[tokio::test]
async fn an_order_that_was_taken_back_too_late_is_what_the_node_says_that_became_of_it() {
    let (_dir, store) = store().await;
    let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
    let mut tx = store.begin().await.unwrap();
    submit(&mut tx, &order("s", CommandType::Shutdown)).await.unwrap();
    told(&mut tx, "s", UnixSeconds(1100)).await.unwrap();
    assert!(cancel(&mut tx, "s").await.unwrap());
    let done = ack("s", AcknowledgementStatus::Done);
    let now = UnixSeconds(1500);
    assert!(acknowledge(&mut tx, &cluster, &node, &done, now).await.unwrap());
    let refused = ack("s", AcknowledgementStatus::Refused);
    assert!(
        !acknowledge(&mut tx, &cluster, &node, &refused, now)
            .await
            .unwrap(),
        "it has an outcome"
    );
    tx.commit().await.unwrap();
    let row = find(store.reader(), "s").await.unwrap().unwrap();
    assert_eq!((row.state, row.acknowledged_at), (CommandState::Done, Some(now)));
    assert!(pending(store.reader()).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_agent_accepts_the_signed_order_until_its_deadline() {
    let (_dir, store) = store().await;
    let mut tx = store.begin().await.unwrap();
    submit(&mut tx, &order("c1", CommandType::Shutdown))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let rows = pending(store.reader()).await.unwrap();
    let key = Seed::from_bytes(&[9; 32]).unwrap();
    assert!(signed(&rows, "hpc-1", "wasm1abc", &key, UnixSeconds(2001)).is_empty());
    let commands = signed(&rows, "hpc-1", "wasm1abc", &key, UnixSeconds(1500));
    let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
    let scope = CommandScope {
        chain_id: "hpc-1",
        contract: "wasm1abc",
        cluster_id: &cluster,
        node_id: &node,
    };
    let kind = verify_command(
        &commands[0],
        &scope,
        key.public(),
        UnixSeconds(1500),
        &ZebraVerifier,
    )
    .unwrap();
    assert_eq!(kind, CommandType::Shutdown);
}
