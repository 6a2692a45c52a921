//! Alerts, while the receiver fails, hangs and restarts, and the daemon is killed: each is delivered once, grouped, and resolved
//! once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hpc_schema::node::NodeState;
use hpc_schema::registry::{ExecuteMsg, ParamsUpdate};
use virtengine_provider::clock;
use virtengine_provider::config::{Alertmanager, Alerts, Config, Span, Webhook};
use virtengine_provider::identity::Ca;

use crate::agent::Agent;
use crate::process::{Process, beat};
use crate::receiver::{Got, Mode, Receiver};
use crate::scene::{Scene, Setting};
use crate::site::{Site, eventually};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn webhook(site: &Site, url: String) -> Webhook {
    Webhook {
        url,
        secret_file: secret_file(site),
        ca_file: None,
    }
}

fn secret_file(site: &Site) -> PathBuf {
    let path = site.home().join("webhook.secret");
    fs::write(&path, SECRET).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// As the documentation shows how to check it.
fn is_signed(got: &Got) -> bool {
    let time = got
        .signature
        .strip_prefix("t=")
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    virtengine_provider::alert::signature(SECRET.as_bytes(), time.parse().unwrap(), &got.text)
        == got.signature
}

/// Of each status, which message names which nodes.
fn told(receiver: &Receiver, status: &str) -> Vec<Vec<String>> {
    let of_status = |g: &Got| g.body["name"] == "node_stale" && g.body["status"] == status;
    let nodes = |g: Got| {
        let alerts = g.body["alerts"].as_array().unwrap().clone();
        alerts
            .iter()
            .map(|a| a["node_id"].as_str().unwrap().to_owned())
            .collect()
    };
    receiver
        .taken()
        .into_iter()
        .filter(of_status)
        .map(nodes)
        .collect()
}

/// What an Alertmanager has in the end: of each node whether its alert is over.
fn managed(manager: &Receiver) -> BTreeMap<String, bool> {
    let mut nodes = BTreeMap::new();
    for got in manager.got().into_iter().filter(|g| g.taken) {
        for alert in got.body.as_array().unwrap() {
            assert!(alert["startsAt"].is_string() && alert["annotations"]["summary"].is_string());
            if alert["labels"]["alertname"] == "node_stale" {
                let ends: hpc_schema::time::Rfc3339 = alert["endsAt"].as_str().unwrap().parse().unwrap();
                let over = ends.seconds() <= virtengine_provider::clock::now();
                nodes.insert(alert["labels"]["node"].as_str().unwrap().to_owned(), over);
            }
        }
    }
    nodes
}

async fn heartbeat_timeout(site: &Site, seconds: u32) {
    let params = ParamsUpdate {
        heartbeat_timeout: Some(seconds),
        ..ParamsUpdate::default()
    };
    site.owner_sends(&ExecuteMsg::UpdateParams { params }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_delivered_once_grouped_and_resolved_once_whatever_receiver_and_daemon_do() {
    let mut site = Site::start().await;
    heartbeat_timeout(&site, 60).await;
    let mut nodes = Vec::new();
    for name in ["node-0001", "node-0002", "node-0003"] {
        let agent = Agent::enrolled(&site, name).await;
        let client = agent.client(&site);
        nodes.push((agent, client));
    }
    site.stop_daemon().await;
    let mut hook = Receiver::start(Mode::Fails).await;
    let manager = Receiver::start(Mode::Fails).await;
    let file = site.home().join("config.yaml");
    let mut config = Config::load(&file, std::iter::empty()).unwrap();
    config.alerts = Alerts {
        group_wait: Span::seconds(12),
        log: false,
        webhooks: vec![webhook(&site, format!("{}/hook", hook.url()))],
        alertmanagers: vec![Alertmanager {
            url: manager.url(),
            token_file: None,
            ca_file: None,
        }],
        ..Alerts::default()
    };
    fs::write(&file, serde_yaml_ng::to_string(&config).unwrap()).unwrap();
    let (_, err, code) = site.run(&["config", "check"]);
    assert_eq!(code, 0, "{err}");

    // Killed when the message is written and not sent.
    let mut process = Process::start(&site, Some("alert.queued"));
    for (agent, client) in &nodes {
        assert!(beat(agent, client, process.port, 1).await);
    }
    for (agent, _) in &nodes {
        site.wait_sequence(&agent.node, 1).await;
    }
    let chain_now = site.devnet.block_time_nanos().unwrap() / 1_000_000_000;
    site.devnet.set_time(chain_now + 57);
    eventually("its first death", async || process.is_dead()).await;
    for (agent, _) in &nodes {
        assert_eq!(site.node(&agent.node).await.recorded_state, NodeState::Stale);
    }

    // The receiver fails, then hangs, then is away; killed when it has taken the message and that is not on record.
    let mut process = Process::start(&site, Some("alert.sent"));
    let tries = hook.got().len();
    eventually("two failures", async || hook.got().len() >= tries + 2).await;
    hook.set(Mode::Hangs);
    let tries = hook.got().len();
    eventually("a delivery that hangs", async || hook.got().len() > tries).await;
    hook.restart(Mode::Takes).await;
    eventually("its second death", async || process.is_dead()).await;
    assert_eq!(told(&hook, "firing").len(), 1);

    let process = Process::start(&site, None);
    manager.set(Mode::Takes);
    let taken = || hook.got().iter().filter(|g| g.taken).count();
    eventually("the same message again", async || taken() >= 2).await;
    eventually("the Alertmanager", async || managed(&manager).len() == 3).await;
    assert!(managed(&manager).values().all(|over| !over));

    // The chain's clock is a minute ahead for good: by the short timeout they would be stale again at once.
    heartbeat_timeout(&site, 120).await;
    for (agent, client) in &nodes {
        assert!(beat(agent, client, process.port, 2).await);
    }
    eventually("all resolved", async || {
        told(&hook, "resolved").concat().len() == 3
    })
    .await;
    eventually("the Alertmanager", async || {
        managed(&manager).values().all(|over| *over)
    })
    .await;
    let names: Vec<String> = nodes.iter().map(|(a, _)| a.node.clone()).collect();
    assert_eq!(
        told(&hook, "firing"),
        std::slice::from_ref(&names),
        "once, grouped"
    );
    let mut resolved = told(&hook, "resolved").concat();
    resolved.sort();
    assert_eq!(resolved, names, "each once");
    assert!(hook.got().iter().all(is_signed));
    assert!(
        hook.got()
            .iter()
            .all(|g| g.body["chain_id"] == crate::site::CHAIN_ID)
    );
}

/// A scene whose alerts go to this receiver, once its daemon starts.
async fn told_at(hook: &Receiver) -> Scene {
    let mut scene = Scene::prepare(Setting::default()).await;
    scene.site.stop_daemon().await;
    scene.config.alerts = Alerts {
        group_wait: Span::seconds(1),
        webhooks: vec![webhook(&scene.site, hook.url())],
        ..Alerts::default()
    };
    scene
}

#[tokio::test]
async fn receivers_are_told_of_a_store_that_fails_past_it_and_of_its_end() {
    let hook = Receiver::start(Mode::Takes).await;
    let mut scene = told_at(&hook).await;
    scene.site.start_with(scene.config.clone()).await;
    let told = |status: &str| {
        let of = |g: &&Got| g.body["name"] == "store_failing" && g.body["status"] == status;
        hook.taken().iter().filter(of).count()
    };
    // Another program holds the store for longer than anybody waits.
    let file = scene.site.home().join("store/provider.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    let held = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    scene.waits("the alert", async || told("firing") == 1).await;
    held.rollback().await.unwrap();
    scene.waits("its end", async || told("resolved") == 1).await;
    scene.sleep(2_000).await;
    assert_eq!((told("firing"), told("resolved")), (1, 1));
    pool.close().await;
    scene.site.stop_daemon().await;
}

#[tokio::test]
async fn reports_that_wait_for_too_long_are_an_alert_that_is_resolved_once_when_they_are_settled() {
    let hook = Receiver::start(Mode::Takes).await;
    let mut scene = told_at(&hook).await;
    // Less than a configuration may say, so that nobody waits for a minute.
    scene.config.alerts.unsettled_after = Span::seconds(20);
    scene.site.start_with(scene.config.clone()).await;
    scene.enrol().await;
    let told = |status: &str| {
        let of = |g: &&Got| g.body["name"] == "reports_unsettled" && g.body["status"] == status;
        hook.taken().iter().filter(of).count()
    };
    scene.beat().await;
    scene.settled().await;
    assert_eq!(told("firing"), 0, "it did not wait");
    scene.site.devnet.halt();
    let accepted = Instant::now();
    scene.beat().await;
    scene.waits("the alert", async || told("firing") == 1).await;
    let waited = accepted.elapsed();
    assert!(waited >= Duration::from_secs(20), "{waited:?}");
    // It goes on, and is not told again.
    scene.beat().await;
    scene.sleep(7_000).await;
    assert_eq!((told("firing"), told("resolved")), (1, 0));
    scene.site.devnet.resume();
    scene.settled().await;
    scene.waits("its end", async || told("resolved") == 1).await;
    // Longer than the gateway takes to look at the queue again.
    scene.sleep(7_000).await;
    assert_eq!((told("firing"), told("resolved")), (1, 1));
    scene.site.stop_daemon().await;
}

#[tokio::test]
async fn a_message_that_its_receiver_never_takes_is_dropped_and_what_comes_after_it_arrives() {
    let hook = Receiver::start(Mode::RefusesFirst).await;
    let mut scene = told_at(&hook).await;
    // A trusted CA that has ended: an alert from the beginning.
    let (past, _) = Ca::create(clock::now().minus(11 * 365 * 86_400), [9; 16]).unwrap();
    let trusted = scene.site.home().join("ca/trusted");
    fs::create_dir_all(&trusted).unwrap();
    fs::write(trusted.join("previous.crt"), past.pem()).unwrap();
    scene.site.start_with(scene.config.clone()).await;
    // The six tries take 40 s and longer on a busy machine: each half has its own minute.
    scene.waits("four tries", async || hook.got().len() >= 4).await;
    scene.waits("six tries", async || hook.got().len() >= 6).await;
    scene.says("a message of alerts is dropped").await;
    let first = hook.got().remove(0).id;
    scene
        .waits("the trouble that it is", async || {
            let failing = |g: &Got| g.body["name"] == "alert_sink_failing" && g.body["status"] == "firing";
            hook.taken().iter().any(failing)
        })
        .await;
    let of_first = |g: &&Got| g.id == first;
    assert_eq!(hook.got().iter().filter(of_first).count(), 6);
    scene.site.stop_daemon().await;
}

#[tokio::test]
async fn a_receiver_whose_secret_others_can_read_is_refused_with_its_key() {
    let site = Site::prepare().await;
    let path = secret_file(&site);
    let mut alerts = Alerts {
        webhooks: vec![Webhook {
            url: "http://127.0.0.1:9/".into(),
            secret_file: path.clone(),
            ca_file: None,
        }],
        ..Alerts::default()
    };
    let start = async |alerts: &Alerts| {
        let mut config = site.config();
        config.alerts = alerts.clone();
        let home = virtengine_provider::home::Home::new(site.home());
        match virtengine_provider::daemon::Daemon::start(home, config).await {
            Ok(daemon) => {
                daemon.stop().await;
                String::new()
            }
            Err(e) => format!("{} {e}", e.exit_code()),
        }
    };
    assert_eq!(start(&alerts).await, "");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = start(&alerts).await;
    assert!(refused.starts_with("78 alerts.webhooks.secret_file"), "{refused}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "short").unwrap();
    assert!(start(&alerts).await.contains("fewer than 16 bytes"));
    alerts.webhooks.clear();
    alerts.alertmanagers.push(Alertmanager {
        url: "http://127.0.0.1:9093".into(),
        token_file: Some(site.home().join("absent")),
        ca_file: None,
    });
    let refused = start(&alerts).await;
    assert!(
        refused.starts_with("78 alerts.alertmanagers.token_file"),
        "{refused}"
    );
}
