use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use hpc_schema::time::Rfc3339;
use serde_json::Value;
use tokio::net::TcpListener;

use super::super::own::{Whose, Written};
use super::super::sink::sinks;
use super::super::standing::Standing;
use super::*;
use crate::config::{Alertmanager, Alerts, Span, Webhook};
use crate::db;
use crate::home::Home;
use crate::registry::Registry;
use crate::store::Store;

/// A receiver, with whether it fails.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<(bool, Vec<Value>)>>);

impl Receiver {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn fails(&self, fails: bool) {
        self.0.lock().unwrap().0 = fails;
    }

    fn got(&self) -> Vec<Value> {
        self.0.lock().unwrap().1.clone()
    }
}

async fn take(State(receiver): State<Receiver>, text: String) -> StatusCode {
    let mut inner = receiver.0.lock().unwrap();
    inner.1.push(serde_json::from_str(&text).unwrap());
    if inner.0 {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    }
}

async fn parts(dir: &Path, config: Alerts) -> Parts {
    Parts {
        config: Alerts {
            log: false,
            group_wait: Span::seconds(0),
            ..config
        },
        home: Home::new(dir),
        store: Store::open(&dir.join("p.db")).await.unwrap(),
        registry: Arc::new(Registry::new("chain-1", "contract")),
        health: Arc::default(),
        metrics: Arc::default(),
        instance: None,
        standing: Standing::default(),
    }
}

/// What tells an Alertmanager, and what that got.
async fn alertmanager(dir: &Path) -> (Teller, Receiver) {
    let receiver = Receiver::default();
    let config = Alerts {
        alertmanagers: vec![Alertmanager {
            url: receiver.start().await,
            token_file: None,
            ca_file: None,
        }],
        ..Alerts::default()
    };
    let parts = parts(dir, config).await;
    let sink = sinks(&parts.config).unwrap().remove(0);
    (Teller::new(parts, sink), receiver)
}

async fn run(store: &Store, sql: &'static str) {
    let mut tx = store.begin().await.unwrap();
    db::query(sql).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Brings the store up to what is wrong.
async fn written(parts: &Parts, written: &mut Written) {
    let troubles = parts.health.troubles();
    let now = clock::now_ms();
    written.update(&parts.store, &troubles, true, now).await.unwrap();
}

async fn turns(teller: &mut Teller) {
    while teller.turn().await {}
}

/// When an alert ends, by its only alert.
fn ends(message: &Value) -> u64 {
    let ends: Rfc3339 = message[0]["endsAt"].as_str().unwrap().parse().unwrap();
    ends.seconds().0
}

#[tokio::test]
async fn an_alertmanager_is_told_again_for_as_long_as_the_store_fails_and_a_webhook_once() {
    let dir = tempfile::tempdir().unwrap();
    let (manager, received) = alertmanager(dir.path()).await;
    let hook = Receiver::default();
    let secret = dir.path().join("secret");
    fs::write(&secret, "0123456789abcdef").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let config = Alerts {
        webhooks: vec![Webhook {
            url: hook.start().await,
            secret_file: secret,
            ca_file: None,
        }],
        ..Alerts::default()
    };
    let sink = sinks(&Alerts { log: false, ..config }).unwrap().remove(0);
    let parts = manager.parts.clone();
    let mut tellers = [manager, Teller::new(parts.clone(), sink)];
    parts.health.raise("store_failing", "the disk is full");
    for teller in &mut tellers {
        for _ in 0..3 {
            teller.past_the_store().await;
        }
        teller.direct.told_at = Some(Instant::now().checked_sub(AGAIN).unwrap());
        teller.past_the_store().await;
    }
    let now = clock::now().0;
    let got = received.got();
    assert_eq!((got.len(), hook.got().len()), (2, 1));
    assert_eq!(got[0][0]["startsAt"], got[1][0]["startsAt"]);
    assert!(ends(&got[1]) > now + 600);
    parts.health.clear("store_failing");
    for teller in &mut tellers {
        for _ in 0..2 {
            teller.past_the_store().await;
        }
    }
    let got = received.got();
    assert_eq!((got.len(), hook.got().len()), (3, 2));
    assert!(ends(&got[2]) <= clock::now().0);
    assert_eq!(hook.got()[1]["status"], "resolved");
}

#[tokio::test]
async fn while_the_store_cannot_be_read_an_alertmanager_is_told_again_what_it_was_told_and_no_end_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut teller, received) = alertmanager(dir.path()).await;
    let parts = teller.parts.clone();
    let mut found = Written::new(Whose::Alone);
    for key in ["one", "other"] {
        parts.health.raise_of("insufficient_funds", key, "send tokens");
    }
    written(&parts, &mut found).await;
    turns(&mut teller).await;
    parts.health.clear_of("insufficient_funds", "other");
    written(&parts, &mut found).await;
    turns(&mut teller).await;
    let told = received.got().len();

    run(&parts.store, "ALTER TABLE alert RENAME TO alert_away").await;
    for _ in 0..3 {
        assert!(!teller.turn().await);
    }
    assert_eq!(received.got().len(), told, "not before a minute is over");
    teller.again_at = Instant::now();
    assert!(!teller.turn().await);
    let again = received.got().split_off(told);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].as_array().unwrap().len(), 1, "{again:?}");
    assert_eq!(again[0][0]["labels"]["subject"], "one");
    assert!(ends(&again[0]) > clock::now().0 + 600);

    // The store is back, and knows of the end.
    run(&parts.store, "ALTER TABLE alert_away RENAME TO alert").await;
    parts.health.clear_of("insufficient_funds", "one");
    written(&parts, &mut found).await;
    turns(&mut teller).await;
    let told = received.got().len();
    run(&parts.store, "ALTER TABLE alert RENAME TO alert_away").await;
    teller.again_at = Instant::now();
    assert!(!teller.turn().await);
    assert_eq!(received.got().len(), told);
}

#[tokio::test]
async fn of_several_gateways_the_one_that_told_last_goes_on_while_the_store_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let (mut alone, received) = alertmanager(dir.path()).await;
    alone.parts.instance = Some("host:1".to_owned());
    let parts = alone.parts.clone();
    parts.health.raise_of("insufficient_funds", "one", "send tokens");
    written(&parts, &mut Written::new(Whose::Site)).await;
    turns(&mut alone).await;
    let sink = alone.sink.clone();
    // It lost its turn with the store.
    drop(alone);
    let told = received.got().len();
    let mut directly = Teller::new(parts.clone(), sink.clone());
    parts.health.raise("store_failing", "no connection");
    directly.past_the_store().await;
    assert!(directly.is_past_the_store());
    directly.again_at = Instant::now();
    directly.again_as_told().await;
    let again = received.got().split_off(told);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0][0]["labels"]["subject"], "one");

    // Long before that another one had the turn.
    let text = r#"[{"labels":{"subject":"one"}}]"#;
    let then = Instant::now().checked_sub(3 * AGAIN).unwrap();
    parts.standing.known(&sink.id, text, then);
    let told = received.got().len();
    let mut directly = Teller::new(parts, sink);
    directly.past_the_store().await;
    directly.again_at = Instant::now();
    directly.again_as_told().await;
    assert_eq!(received.got().len(), told);
}

#[tokio::test]
async fn where_the_store_cannot_be_written_a_message_that_was_taken_goes_once_and_one_that_was_not_pauses() {
    let dir = tempfile::tempdir().unwrap();
    let (mut teller, received) = alertmanager(dir.path()).await;
    let parts = teller.parts.clone();
    let mut found = Written::new(Whose::Alone);
    parts.health.raise_of("insufficient_funds", "one", "send tokens");
    written(&parts, &mut found).await;
    let full = "CREATE TRIGGER full_d BEFORE DELETE ON alert_outbox BEGIN SELECT RAISE(ABORT, 'full'); END";
    run(&parts.store, full).await;
    for _ in 0..3 {
        assert!(!teller.turn().await);
    }
    assert_eq!(received.got().len(), 1);
    // What goes on is told again all the same.
    teller.again_at = Instant::now();
    assert!(!teller.turn().await);
    assert_eq!(received.got().len(), 2);
    run(&parts.store, "DROP TRIGGER full_d").await;
    assert!(teller.turn().await, "it is off");
    assert!(!teller.turn().await);
    assert_eq!(received.got().len(), 2);

    let full = "CREATE TRIGGER full_u BEFORE UPDATE ON alert_outbox BEGIN SELECT RAISE(ABORT, 'full'); END";
    run(&parts.store, full).await;
    parts
        .health
        .raise_of("insufficient_funds", "other", "send tokens");
    written(&parts, &mut found).await;
    received.fails(true);
    for _ in 0..3 {
        assert!(!teller.turn().await);
    }
    assert_eq!(received.got().len(), 3);
}
