//! What the store promises gateways that share it.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use virtengine_provider::audit::{self, Actor, Entry};
use virtengine_provider::db;
use virtengine_provider::store::{Store, StoreError};

use crate::site::Site;

async fn two() -> (Site, Store, Store) {
    let site = Site::prepare().await;
    let (one, other) = (site.store().await, site.store().await);
    assert!(one.is_shared() && other.is_shared());
    (site, one, other)
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_duties_and_a_key_are_one_gateways_until_it_is_silent_or_gives_them_up() {
    let (_site, one, other) = two().await;
    let first = one.lease("one", &keys(&["a", "b"])).await.unwrap().unwrap();
    assert!(other.lease("other", &keys(&["a", "b"])).await.unwrap().is_none());
    assert!(first.renew().await.unwrap());
    let fenced = first.store();
    fenced.begin().await.unwrap().commit().await.unwrap();
    first.give_up().await.unwrap();
    let second = other.lease("other", &keys(&["b"])).await.unwrap().unwrap();
    // Whoever had it before notices with the next thing that it writes.
    assert!(!first.renew().await.unwrap());
    assert!(matches!(fenced.begin().await, Err(StoreError::TakenOver)));
    second.store().begin().await.unwrap().rollback().await.unwrap();
    // One that is silent is waited for no longer than its lease says.
    drop(second);
    let silent = Instant::now();
    while one.lease("one", &keys(&["a", "b"])).await.unwrap().is_none() {
        assert!(silent.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(100)).await;
    }
    assert!(silent.elapsed() > Duration::from_secs(2), "it was held");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_all_have_signs_for_one_gateway_at_a_time() {
    let (_site, one, other) = two().await;
    let (patience, now) = (Duration::from_secs(20), Duration::ZERO);
    let held = one.signing_turn("a", patience).await.unwrap().unwrap();
    assert!(other.signing_turn("a", now).await.unwrap().is_none());
    assert!(one.signing_turn("a", now).await.unwrap().is_none());
    // Another account is free, and writing waits for none of it.
    let beside = other.signing_turn("b", now).await.unwrap();
    assert!(beside.is_some());
    other.begin().await.unwrap().rollback().await.unwrap();
    let waits = tokio::spawn(async move { other.signing_turn("a", patience).await });
    sleep(Duration::from_millis(500)).await;
    assert!(!waits.is_finished());
    drop(held);
    assert!(waits.await.unwrap().unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_all_gateways_exclude_each_other_and_the_audit_log_has_no_gap() {
    let (_site, one, other) = two().await;
    let held = one.begin().await.unwrap();
    assert!(timeout(Duration::from_millis(300), other.begin()).await.is_err());
    assert!(
        timeout(Duration::from_millis(300), other.begin_intake(Vec::new()))
            .await
            .is_err()
    );
    held.rollback().await.unwrap();
    // Nor do those who gave up waiting hold anything.
    let asked = Instant::now();
    one.begin().await.unwrap().rollback().await.unwrap();
    let beside = (
        one.begin_intake(Vec::new()).await.unwrap(),
        other.begin_intake(Vec::new()).await.unwrap(),
    );
    drop(beside);
    one.begin().await.unwrap().rollback().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());

    let writes = |store: Store, name: &'static str| async move {
        for n in 0..20 {
            let mut tx = store.begin().await.unwrap();
            let entry = Entry {
                at: n,
                by: Actor::command_line(name.to_owned()),
                action: "test",
                target: n.to_string(),
                result: "done",
                detail: serde_json::json!({}),
            };
            audit::append(&mut tx, &entry).await.unwrap();
            tx.commit().await.unwrap();
        }
    };
    let before = audit::head(one.reader()).await.unwrap().seq;
    tokio::join!(writes(one.clone(), "one"), writes(other.clone(), "other"));
    let mut seen = 0;
    let whole = audit::verify(one.reader(), |_| seen += 1).await.unwrap();
    assert_eq!(whole.unwrap().seq, seen);
    assert_eq!(seen, before + 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_in_the_middle_of_writing_keeps_the_others_waiting_for_seconds_at_most() {
    let (_site, one, other) = two().await;
    let hung = one.begin().await.unwrap();
    let asked = Instant::now();
    let mut tx = None;
    while tx.is_none() {
        assert!(asked.elapsed() < Duration::from_secs(9));
        tx = other.begin().await.ok();
    }
    assert!(asked.elapsed() > Duration::from_secs(2), "it was held");
    assert!(hung.commit().await.is_err(), "its session is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_of_one_gateway_is_heard_by_the_other() {
    let (_site, one, other) = two().await;
    let changes = other.changes();
    // It may say so as soon as it listens.
    let heard = timeout(Duration::from_secs(10), async {
        loop {
            let mut tx = one.begin().await.unwrap();
            virtengine_provider::control::touch(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            if timeout(Duration::from_millis(200), changes.heard()).await.is_ok() {
                break;
            }
        }
    });
    heard.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_lock_in_vain_leaves_no_connection_that_takes_nothing_any_more() {
    let (_site, one, other) = two().await;
    let mut held = one.begin().await.unwrap();
    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.begin().await.map(drop) }
    });
    // A session that says nothing is ended.
    while !waits.is_finished() {
        db::query("SELECT 1").execute(&mut *held).await.unwrap();
        sleep(Duration::from_millis(500)).await;
    }
    assert!(waits.await.unwrap().is_err(), "it waited for as long as it may");
    held.rollback().await.unwrap();
    // As often as there are connections, and more.
    for _ in 0..20 {
        let mut tx = timeout(Duration::from_secs(5), other.begin())
            .await
            .unwrap()
            .unwrap();
        db::query("SELECT 1").execute(&mut *tx).await.unwrap();
        tx.rollback().await.unwrap();
    }
}
