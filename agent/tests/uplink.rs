//! The agent against a gateway with real TLS that verifies with the schema's own functions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gateway::{
    CLUSTER, Gateway, Home, NODE, Port, Running, Site, quick, read, registered, status, until_status,
};
use hpc_schema::code::Code;
use hpc_schema::gateway::certificate_uri;
use hpc_schema::heartbeat::HealthStatus;
use virtengine_node_agent::api::Board;
use virtengine_node_agent::clock::{Clock, instant};
use virtengine_node_agent::config::{Config, Overrides, load};
use virtengine_node_agent::history::History;
use virtengine_node_agent::probe::memory::Memory;
use virtengine_node_agent::register::{Csr, Outcome, RegisterError, register, register_by};
use virtengine_node_agent::run::{Agent, Signal, Timing, World};
use virtengine_node_agent::sample::{Category, Collector, Reading, Sampler, Sources};
use virtengine_node_agent::sequence::BLOCK;
use virtengine_node_agent::state::{Outages, Problem, Registration, StateDir, Status};
use virtengine_node_agent::uplink::{
    CaPin, Dial, Identity, IssuedError, certificates as read_certificates, check_issued, pinned,
};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn registration(gateway: &Gateway, n: usize) -> serde_json::Value {
    gateway.seen().registrations[n].clone()
}

/// Renewals and recoveries.
fn certificates(gateway: &Gateway) -> (u32, u32) {
    let seen = gateway.seen();
    (seen.renewals, seen.recoveries)
}

#[tokio::test]
async fn register_writes_certificate_key_and_state_and_repeats_nothing() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    gateway.behaviour().pending_answers = 1;
    let r = registered(&gateway, &home).await;
    assert_eq!(
        (r.node_id.as_str(), r.epoch, r.public_key),
        (NODE, 7, home.key.public())
    );
    let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("tls/client.key"), mode("tls/client.crt"), mode("tls/ca.crt")),
        (0o600, 0o644, 0o644)
    );
    assert!(!home.path("state/register.json").exists());
    // The pending answer made it repeat the very same request.
    assert_eq!(gateway.seen().registrations.len(), 2);
    let (first, second) = (registration(&gateway, 0), registration(&gateway, 1));
    assert_eq!(first, second);
    let request = first;
    assert_eq!(request["hardware_fingerprint"].as_str().unwrap().len(), 64);
    assert_eq!(
        request["hostname"].as_str().unwrap(),
        read(std::path::Path::new("/proc/sys/kernel/hostname")).trim()
    );
    // Again: nothing is sent.
    let token = gateway.token(&home.key.public());
    let again = register(
        &home.config(&[gateway.url()], Some(&token)),
        &home.key,
        PATIENCE,
        |_| {},
    )
    .await
    .unwrap();
    assert!(matches!(again, Outcome::Already(_)));
    assert_eq!(gateway.seen().registrations.len(), 2);
}

#[tokio::test]
async fn an_interrupted_registration_is_repeated_with_the_same_request() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    gateway.behaviour().pending_answers = 1000;
    let token = gateway.token(&home.key.public());
    let config = home.config(&[gateway.url()], Some(&token));
    let e = register(&config, &home.key, Some(Duration::from_secs(2)), |_| {})
        .await
        .unwrap_err();
    assert!(matches!(e, RegisterError::TimedOut { .. }), "{e}");
    let pending = std::fs::metadata(home.path("state/register.json")).unwrap();
    assert_eq!(pending.permissions().mode() & 0o777, 0o600);
    gateway.behaviour().pending_answers = 0;
    register(&config, &home.key, PATIENCE, |_| {}).await.unwrap();
    let seen = gateway.seen();
    assert_eq!(
        seen.registrations[0]["csr"],
        seen.registrations.last().unwrap()["csr"]
    );
}

#[tokio::test]
async fn a_gateway_with_another_ca_than_the_token_pins_never_sees_the_token() {
    let (gateway, impostor) = (Gateway::start().await, Gateway::start().await);
    let home = Home::new();
    let token = gateway.token(&home.key.public());
    let config = home.config(&[impostor.url()], Some(&token));
    let e = register(&config, &home.key, Some(Duration::from_secs(3)), |_| {})
        .await
        .unwrap_err();
    assert!(e.to_string().contains("pins the gateway's CA"), "{e}");
    assert!(impostor.seen().connections > 0);
    assert!(impostor.seen().registrations.is_empty());
}

#[tokio::test]
async fn tokens_for_others_and_used_tokens_are_refused_with_their_code() {
    let gateway = Gateway::start().await;
    let (home, other) = (Home::new(), Home::new());
    let token = gateway.token(&other.key.public());
    let e = register(
        &home.config(&[gateway.url()], Some(&token)),
        &home.key,
        PATIENCE,
        |_| {},
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&e, RegisterError::Refused(r) if r.code == Code::KeyMismatch),
        "{e}"
    );
    assert!(gateway.seen().registrations.is_empty());
    registered(&gateway, &home).await;
    // Used by another key: that one is registered, and this one brings nothing back.
    let e = register(
        &other.config(&[gateway.url()], Some(&token)),
        &other.key,
        PATIENCE,
        |_| {},
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&e, RegisterError::RefusedByGateway { code, .. } if code == "token_used"),
        "{e}"
    );
    let e = register(
        &other.config(&[gateway.url()], None),
        &other.key,
        PATIENCE,
        |_| {},
    )
    .await
    .unwrap_err();
    assert!(matches!(e, RegisterError::NoToken));
    let e = register(
        &home.config(&[gateway.url()], Some("a.b.c")),
        &home.key,
        PATIENCE,
        |_| {},
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&e, RegisterError::Refused(r) if r.code == Code::TokenInvalid),
        "{e}"
    );
}

#[tokio::test]
async fn every_heartbeat_verifies_and_a_clean_stop_says_offline() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    home.calm();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(5).await;
    agent.stop().await;
    let seen = gateway.seen();
    assert!(seen.refusals.is_empty(), "{:?}", seen.refusals);
    let first = &seen.heartbeats[0].heartbeat;
    assert_eq!(
        first.capacity.cpu_cores_total,
        u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap()
    );
    assert!(first.health.uptime_seconds.unwrap() > 0 && first.health.load_average_1m.is_some());
    assert_eq!(first.health.status, HealthStatus::Healthy, "{:?}", first.health);
    assert!(
        seen.heartbeats[1]
            .heartbeat
            .latency
            .as_ref()
            .unwrap()
            .gateway_latency_us
            .unwrap()
            > 0
    );
    assert_eq!(
        seen.heartbeats[1]
            .heartbeat
            .latency
            .as_ref()
            .unwrap()
            .chain_latency_ms,
        Some(4)
    );
    let sequences: Vec<u32> = seen.heartbeats.iter().map(|h| h.report.sequence).collect();
    assert_eq!(
        sequences,
        (1..=u32::try_from(sequences.len()).unwrap()).collect::<Vec<_>>()
    );
    assert_eq!(
        seen.heartbeats.last().unwrap().heartbeat.health.status,
        HealthStatus::Offline
    );
    // One connection carried them all, and one more the farewell.
    assert!(seen.connections <= 3, "{}", seen.connections);
    let s = status(&home);
    assert!(s.stopped_at.is_some() && s.last_refusal.is_none() && s.last_error.is_none());
    let (receipt, last) = (s.receipt.unwrap(), seen.heartbeats.last().unwrap());
    assert_eq!(
        (receipt.sequence, receipt.payload_sha256),
        (last.report.sequence, hex::encode(last.report.payload_hash))
    );
}

#[tokio::test]
async fn the_section_travels_until_a_report_with_it_is_settled_and_again_when_it_is_missing() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    gateway.behaviour().settles = false;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(3).await;
    assert!(gateway.seen().with_section.iter().all(|s| *s));
    gateway.behaviour().settles = true;
    gateway
        .until("a heartbeat without section", |s| {
            s.with_section.last() == Some(&false)
        })
        .await;
    let before = gateway.seen().with_section.len();
    gateway.behaviour().refuse.push_back(Code::SectionMissing);
    gateway
        .until("the section again", |s| s.with_section[before..].contains(&true))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn starting_before_the_gateway_waits_and_an_outage_ends_within_the_backoff_bound() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    let shared = std::sync::Arc::clone(&gateway.shared);
    drop(gateway);
    let port = Port::free();
    let url = format!("https://localhost:{}", port.number());
    let agent = Running::start(&home, &[url], quick());
    // Without its bound of 400 ms the tenth pause would be of half a minute.
    let trouble = until_status(&home, "failures", |s| s.failures_in_a_row >= 10).await;
    assert_eq!(trouble.last_error.unwrap().code, "gateway_unreachable");
    let back = Instant::now();
    let gateway = Gateway::start_at(port.address(), shared).await;
    gateway.until_heartbeats(1).await;
    assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    agent.stop().await;
    assert_eq!(status(&home).failures_in_a_row, 0);
    let outages = Outages::load(&StateDir::new(&home.path("state")));
    let outage = outages.iter().next_back().unwrap();
    assert!(outage.until.is_some() && outage.attempts >= 2, "{outage:?}");
    assert_eq!(outage.code, "gateway_unreachable");
}

/// A machine that is asked where the agent runs: simulated time knows no thread.
struct Machine(Category);

impl Collector for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }
    fn category(&self) -> Category {
        self.0
    }
    fn collect(&mut self, _: Instant) -> Vec<Reading> {
        let memory = Memory {
            total: 8 << 30,
            available: 4 << 30,
        };
        match self.0 {
            Category::Capacity => vec![Reading::Cores(Some(8)), Reading::Memory(Some(memory))],
            _ => vec![Reading::Cpu(Some(7))],
        }
    }
}

fn machine(_: &Sources) -> Sampler {
    let categories = [Category::Capacity, Category::Utilization];
    Sampler::inline(
        categories
            .map(|c| Box::new(Machine(c)) as Box<dyn Collector>)
            .into(),
    )
}

/// The bounded spool of an outage: its samples and its entry in the journal. No heartbeat of it is sent later.
#[tokio::test(start_paused = true)]
async fn an_outage_leaves_its_samples_and_its_journal_and_no_old_heartbeat_is_sent() {
    let minutes = |n: u64| tokio::time::sleep(Duration::from_secs(n * 60));
    let site = Site::start(machine).await;
    let config = site.registered().await;
    let agent = Agent::new(config, site.world.clone()).unwrap();
    let (stop, signals) = tokio::sync::mpsc::channel(1);
    let running = tokio::spawn(agent.run(signals));
    minutes(2).await;
    let (began, before) = (site.world.clock.seconds(), site.gateway.seen().heartbeats.len());
    site.down.store(true, Ordering::Relaxed);
    site.wire.lock().unwrap().take().unwrap().abort();
    minutes(30).await;
    let ended = site.world.clock.seconds();
    site.down.store(false, Ordering::Relaxed);
    minutes(2).await;
    let first = site.gateway.seen().heartbeats[before].report.time;
    assert!(
        u64::from(first) >= ended,
        "{first} is of the outage, which ended at {ended}"
    );
    stop.send(Signal::Stop).await.unwrap();
    running.await.unwrap();
    let state = StateDir::new(&site.home.path("state"));
    let outages = Outages::load(&state);
    let all: Vec<_> = outages.iter().collect();
    assert_eq!(all.len(), 1);
    assert!(
        all[0].until.unwrap() - all[0].from >= 29 * 60 && all[0].attempts > 50,
        "{all:?}"
    );
    // As many samples as are kept, the newest of them; most are of the outage.
    let samples = History::read(&state.history(), Category::Utilization, 0).unwrap();
    let during = samples.iter().filter(|s| (began..ended).contains(&s.at)).count();
    assert!(
        samples.len() <= 100 && during >= 60,
        "{during} of {}",
        samples.len()
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_measured_is_shown_while_a_certificate_is_waited_for() {
    let site = Site::start(machine).await;
    site.gateway.behaviour().certificate_life = Duration::from_secs(60);
    let way = (&site.world.clock, &site.world.dial);
    register_by(&site.config, &site.home.key, PATIENCE, way, |_| {})
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let config = Config {
        token: None,
        ..site.config.clone()
    };
    // The gateway's address takes nothing and refuses nothing.
    let world = World {
        dial: Dial::new(|_| Box::pin(std::future::pending())),
        ..site.world.clone()
    };
    let mut agent = Agent::new(config, world).unwrap();
    let board = Arc::new(Board::default());
    agent.show_on(Arc::clone(&board));
    let (_stop, signals) = tokio::sync::mpsc::channel(1);
    let running = tokio::spawn(agent.run(signals));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, view) = board.get().expect("figures");
    assert_eq!(view.figures.cpu.fresh(instant()), Some(&7));
    running.abort();
}

#[tokio::test]
async fn a_hanging_gateway_costs_one_timeout_and_stopping_does_not_wait_for_it() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    gateway.behaviour().hang = true;
    let agent = Running::start(&home, &[gateway.url()], quick());
    let begun = Instant::now();
    let state = StateDir::new(&home.path("state"));
    let error = loop {
        let status = Status::load(&state).unwrap_or_default();
        if let Some(error) = status.and_then(|s| s.last_error) {
            break error;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no timeout");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(error.code, "gateway_timeout");
    let start = Instant::now();
    agent.stop().await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_next_gateway_takes_over_and_closed_connections_are_opened_again() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    gateway.behaviour().close = true;
    // Nothing listens on the first one.
    let agent = Running::start(&home, &["https://localhost:1".to_owned(), gateway.url()], quick());
    gateway.until_heartbeats(4).await;
    agent.stop().await;
    let s = status(&home);
    assert_eq!((s.failed, s.endpoint), (0, Some(gateway.url())));
}

#[tokio::test]
async fn the_preferred_gateway_is_used_again_once_it_is_back_and_costs_no_heartbeat() {
    let second = Gateway::start().await;
    let home = Home::new();
    registered(&second, &home).await;
    second.behaviour().next_heartbeat_seconds = 0;
    let port = Port::free();
    let url = format!("https://localhost:{}", port.number());
    let agent = Running::start(&home, &[url.clone(), second.url()], quick());
    second.until_heartbeats(3).await;
    until_status(&home, "the second", |s| s.endpoint == Some(second.url())).await;
    let first = Gateway::start_at(port.address(), std::sync::Arc::clone(&second.shared)).await;
    until_status(&home, "it stays away from the first", |s| {
        s.endpoint == Some(url.clone())
    })
    .await;
    let n = second.seen().heartbeats.len();
    second.until_heartbeats(n + 3).await;
    assert_eq!(status(&home).failed, 0);
    // In trouble of its own it is left at once.
    first.behaviour().http_errors.extend([500]);
    let n = second.seen().heartbeats.len();
    second.until_heartbeats(n + 2).await;
    agent.stop().await;
    assert_eq!(status(&home).failed, 1);
}

#[tokio::test]
async fn a_lost_counter_continues_a_block_above_what_the_gateway_has_seen() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(6).await;
    agent.stop().await;
    let last = gateway.seen().heartbeats.last().unwrap().report.sequence;
    std::fs::remove_file(home.path("state/sequence")).unwrap();
    let count = gateway.seen().heartbeats.len();
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(count + 2).await;
    agent.stop().await;
    let seen = gateway.seen();
    assert_eq!(seen.refusals.len(), 1, "{:?}", seen.refusals);
    assert_eq!(seen.heartbeats[count].report.sequence, last + BLOCK + 1);
}

#[tokio::test]
async fn refusals_and_overload_are_recorded_with_their_remedy_and_end_by_themselves() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    gateway.behaviour().http_errors.extend([503, 429]);
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(1).await;
    // Until it is seen in the status: the heartbeat after it is taken would wipe it out.
    gateway.behaviour().refuse.extend([Code::NodeDisabled; 1000]);
    let refused = until_status(&home, "a refusal", |s| s.last_refusal.is_some()).await;
    gateway.behaviour().refuse.clear();
    let refusal = refused.last_refusal.unwrap();
    assert_eq!(
        (refusal.code.as_str(), refusal.remedy.as_str()),
        ("node_disabled", Code::NodeDisabled.remedy())
    );
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 2).await;
    agent.stop().await;
    assert!(status(&home).last_refusal.is_none());
}

#[tokio::test]
async fn a_heartbeat_that_came_too_slowly_is_no_refusal() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    // As a node that was halted in the midst of a request is answered.
    gateway.behaviour().http_errors.extend([408; 1000]);
    let timing = Timing {
        refused: Duration::from_secs(600),
        ..quick()
    };
    let agent = Running::start(&home, &[gateway.url()], timing);
    let failed = until_status(&home, "failures", |s| s.failures_in_a_row >= 2).await;
    assert!(failed.last_refusal.is_none(), "{failed:?}");
    gateway.behaviour().http_errors.clear();
    gateway.until_heartbeats(2).await;
    agent.stop().await;
}

#[tokio::test]
async fn the_certificate_is_renewed_at_two_thirds_of_its_life() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    // Due after six seconds.
    gateway.behaviour().certificate_life = Duration::from_secs(9);
    registered(&gateway, &home).await;
    gateway.behaviour().certificate_life = Duration::from_secs(3600);
    gateway.behaviour().next_heartbeat_seconds = 0;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until("a renewal", |s| s.renewals == 1).await;
    // Past the end of the first certificate.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 2).await;
    agent.stop().await;
    assert_eq!(certificates(&gateway), (1, 0));
    let mode = std::fs::metadata(home.path("state/tls/client.pem"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // The renewed one wins at the next start.
    let n = gateway.seen().heartbeats.len();
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(n + 1).await;
    agent.stop().await;
    assert_eq!(certificates(&gateway), (1, 0));
}

#[tokio::test]
async fn an_expired_or_lost_certificate_is_recovered_with_the_agents_key() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    gateway.behaviour().certificate_life = Duration::from_secs(1);
    registered(&gateway, &home).await;
    gateway.behaviour().certificate_life = Duration::from_secs(3600);
    gateway.behaviour().next_heartbeat_seconds = 0;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(2).await;
    agent.stop().await;
    assert_eq!(gateway.seen().recoveries, 1);
    std::fs::remove_dir_all(home.path("state/tls")).unwrap();
    std::fs::remove_file(home.path("tls/client.crt")).unwrap();
    let n = gateway.seen().heartbeats.len();
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(n + 1).await;
    agent.stop().await;
    assert_eq!(gateway.seen().recoveries, 2);
}

#[tokio::test]
async fn a_gateway_in_trouble_of_its_own_keeps_no_node_from_its_certificate_where_another_is_well() {
    let second = Gateway::start().await;
    let first = Gateway::start_at("127.0.0.1:0".parse().unwrap(), Arc::clone(&second.shared)).await;
    first.in_trouble.store(true, Ordering::SeqCst);
    let both = [first.url(), second.url()];
    let home = Home::new();
    let token = second.token(&home.key.public());
    let outcome = register(&home.config(&both, Some(&token)), &home.key, PATIENCE, |_| {}).await;
    assert!(matches!(outcome, Ok(Outcome::Registered(_))), "{outcome:?}");
    // Its key brings back a registration that is lost.
    lose_the_disk(&home);
    let outcome = register(&home.config(&both, Some(&token)), &home.key, PATIENCE, |_| {}).await;
    assert!(matches!(outcome, Ok(Outcome::Recovered(_))), "{outcome:?}");
    // And a certificate.
    std::fs::remove_dir_all(home.path("state/tls")).unwrap();
    let agent = Running::start(&home, &both, quick());
    second.until_heartbeats(1).await;
    until_status(&home, "the second", |s| s.endpoint == Some(second.url())).await;
    agent.stop().await;
    assert_eq!(second.seen().recoveries, 2);
}

#[tokio::test]
async fn a_gateway_whose_clock_is_behind_keeps_no_node_from_its_certificate_where_anothers_is_right() {
    let second = Gateway::start().await;
    let first = Gateway::start_at("127.0.0.1:0".parse().unwrap(), Arc::clone(&second.shared)).await;
    first.behind.store(3 * 24 * 3600, Ordering::SeqCst);
    let both = [first.url(), second.url()];
    let home = Home::new();
    let config = home.config(&both, Some(&second.token(&home.key.public())));
    let mut said = Vec::new();
    let outcome = register(&config, &home.key, PATIENCE, |reason| {
        said.push(reason.to_owned());
    })
    .await;
    assert!(matches!(outcome, Ok(Outcome::Registered(_))), "{outcome:?}");
    let names = |reason: &String| reason.contains(&first.url()) && reason.contains("is behind");
    assert!(said.len() == 1 && said.iter().all(names), "{said:?}");
    // Its key brings back a registration that is lost.
    lose_the_disk(&home);
    let outcome = register(&config, &home.key, PATIENCE, |_| {}).await;
    assert!(matches!(outcome, Ok(Outcome::Recovered(_))), "{outcome:?}");
    // And a certificate; nobody says that it is the node's clock, however often the first one alone answers.
    std::fs::remove_dir_all(home.path("state/tls")).unwrap();
    second.in_trouble.store(true, Ordering::SeqCst);
    let timing = Timing {
        fail_back: Duration::from_secs(600),
        ..quick()
    };
    let agent = Running::start(&home, &both, timing);
    let alone = until_status(&home, "five tries", |s| s.failed >= 5).await;
    assert_eq!(alone.clock_skew_ms, None);
    assert!(alone.last_error.is_some(), "{alone:?}");
    second.in_trouble.store(false, Ordering::SeqCst);
    second.until_heartbeats(1).await;
    let at_the_second = |s: &Status| s.endpoint == Some(second.url()) && s.accepted > 0;
    let told = until_status(&home, "the second", at_the_second).await;
    assert!(
        !told.findings.iter().any(|f| f.starts_with("clock_skew")),
        "{told:?}"
    );
    agent.stop().await;
    assert_eq!(second.seen().recoveries, 2);
}

/// A clock that is so many seconds ahead of the machine's.
fn ahead(by: &Arc<AtomicU64>) -> Clock {
    let (machine, by) = (Clock::system(), Arc::clone(by));
    Clock::new(move || machine.since_epoch() + Duration::from_secs(by.load(Ordering::SeqCst)))
}

/// An agent on a machine with that clock.
fn running_ahead(gateway: &Gateway, home: &Home, by: &Arc<AtomicU64>) -> Running {
    let world = World {
        clock: ahead(by),
        ..World::real(quick())
    };
    Running::of(Agent::new(home.config(&[gateway.url()], None), world).unwrap())
}

#[tokio::test]
async fn a_clock_that_is_ahead_of_every_certificate_is_told_and_costs_the_gateway_none() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    let by = Arc::new(AtomicU64::new(30 * 3600));
    let running = running_ahead(&gateway, &home, &by);
    let told = until_status(&home, "the clock", |s| {
        s.last_error.as_ref().is_some_and(|e| e.code == "clock_skew")
    })
    .await;
    let error = told.last_error.unwrap();
    assert!(
        error.message.contains("s ahead of") && error.remedy.contains("NTP"),
        "{error:?}"
    );
    assert!(
        told.clock_skew_ms.is_some_and(|ms| ms < -29 * 3_600_000),
        "{:?}",
        told.clock_skew_ms
    );
    assert_eq!(gateway.seen().recoveries, 0);
    // It is set right, and the agent goes on.
    by.store(0, Ordering::SeqCst);
    gateway.until_heartbeats(1).await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_clock_is_ahead_of_every_certificate_waits_with_its_registration() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let token = gateway.token(&home.key.public());
    let config = home.config(&[gateway.url()], Some(&token));
    let by = Arc::new(AtomicU64::new(30 * 3600));
    let (clock, dial) = (ahead(&by), Dial::tcp());
    let mut said = Vec::new();
    let waited = register_by(&config, &home.key, PATIENCE, (&clock, &dial), |reason| {
        if reason.contains("s ahead of") && reason.contains("NTP") {
            // Told once; set right, it is seen by itself.
            by.store(0, Ordering::SeqCst);
        }
        said.push(reason.to_owned());
    })
    .await;
    assert!(matches!(waited, Ok(Outcome::Registered(_))), "{waited:?}");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(gateway.seen().registrations.len(), 2);
    // And with one that stays wrong nothing more is asked for.
    let home = Home::new();
    let config = home.config(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    by.store(30 * 3600, Ordering::SeqCst);
    gateway.shared.registered.lock().unwrap().take();
    let wait = Some(Duration::from_secs(3));
    let e = register_by(&config, &home.key, wait, (&clock, &dial), |_| {})
        .await
        .unwrap_err();
    assert!(
        matches!(&e, RegisterError::TimedOut { last, .. } if last.contains("NTP")),
        "{e}"
    );
    assert_eq!(gateway.seen().registrations.len(), 3);
}

#[tokio::test]
async fn certificates_that_live_shorter_than_was_thought_and_do_not_count_by_our_clock_are_asked_for_once() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    // Nothing is left that says how long one lives.
    std::fs::remove_file(home.path("tls/client.crt")).unwrap();
    gateway.behaviour().certificate_life = Duration::from_secs(3600);
    gateway.behaviour().next_heartbeat_seconds = 0;
    let by = Arc::new(AtomicU64::new(2 * 3600));
    let running = running_ahead(&gateway, &home, &by);
    let told = until_status(&home, "four tries", |s| s.failed >= 4).await;
    let error = told.last_error.unwrap();
    assert_eq!(error.code, "clock_skew", "{error:?}");
    assert!(told.clock_skew_ms.is_some_and(|ms| ms < -7_000_000));
    assert_eq!(gateway.seen().recoveries, 1);
    by.store(0, Ordering::SeqCst);
    gateway.until_heartbeats(1).await;
    running.stop().await;
    assert_eq!(gateway.seen().recoveries, 2);

    // A registration that is lost is recovered alike.
    lose_the_disk(&home);
    by.store(2 * 3600, Ordering::SeqCst);
    let config = home.config(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let (clock, dial) = (ahead(&by), Dial::tcp());
    let mut said = 0;
    let outcome = register_by(&config, &home.key, PATIENCE, (&clock, &dial), |reason| {
        assert!(reason.contains("s ahead of"), "{reason}");
        said += 1;
        if said == 2 {
            by.store(0, Ordering::SeqCst);
        }
    })
    .await;
    assert!(matches!(outcome, Ok(Outcome::Recovered(_))), "{outcome:?}");
    assert_eq!(gateway.seen().recoveries, 4);

    // And one that is new waits.
    let home = Home::new();
    let config = home.config(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    gateway.shared.registered.lock().unwrap().take();
    by.store(2 * 3600, Ordering::SeqCst);
    let before = gateway.seen().registrations.len();
    let outcome = register_by(&config, &home.key, PATIENCE, (&clock, &dial), |reason| {
        assert!(reason.contains("s ahead of"), "{reason}");
        by.store(0, Ordering::SeqCst);
    })
    .await;
    assert!(matches!(outcome, Ok(Outcome::Registered(_))), "{outcome:?}");
    assert_eq!(gateway.seen().registrations.len(), before + 2);
}

#[tokio::test]
async fn a_clock_that_is_ahead_by_less_than_a_certificate_lives_costs_one_certificate_alone() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    let by = Arc::new(AtomicU64::new(20 * 3600));
    let running = running_ahead(&gateway, &home, &by);
    gateway.until("five heartbeats", |s| s.asked.len() >= 5).await;
    // Before the first answer nothing says that the clock is ahead.
    assert_eq!(certificates(&gateway), (1, 0));
    by.store(0, Ordering::SeqCst);
    gateway.until_heartbeats(1).await;
    running.stop().await;
}

/// Everything but the key, as on a node that boots from an image.
fn lose_the_disk(home: &Home) {
    std::fs::remove_dir_all(home.path("state")).unwrap();
    // What the first registration has written; a recovered one writes into its state alone.
    std::fs::remove_dir_all(home.path("tls")).ok();
}

#[tokio::test]
async fn a_node_that_has_lost_its_disk_goes_on_by_its_key_and_reuses_no_number() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let first = registered(&gateway, &home).await;
    let urls = [gateway.url()];
    let running = Running::start(&home, &urls, quick());
    gateway.until_heartbeats(1).await;
    // Not a clean stop: nothing is written down any more.
    running.task.abort();
    let before = *gateway.seen().sequences.last().unwrap();

    // Its token is used up: another certificate request is not answered by it.
    lose_the_disk(&home);
    let config = home.config(&urls, Some(&gateway.token(&home.key.public())));
    let Outcome::Recovered(r) = register(&config, &home.key, PATIENCE, |_| {}).await.unwrap() else {
        panic!("registered anew");
    };
    assert_eq!((r.epoch, r.last_sequence), (first.epoch, before + BLOCK));
    assert_eq!(
        (&r.chain_id, &r.contract, r.ca_sha256, r.task_public_key),
        (
            &first.chain_id,
            &first.contract,
            first.ca_sha256,
            first.task_public_key
        )
    );
    assert_eq!(r.fingerprint, first.fingerprint);
    let again = register(&config, &home.key, PATIENCE, |_| {}).await.unwrap();
    assert!(matches!(again, Outcome::Already(_)));
    let count = gateway.seen().heartbeats.len();
    let running = Running::start(&home, &urls, quick());
    gateway.until_heartbeats(count + 1).await;
    running.stop().await;

    // Without any token: ids and the gateway's CA, as an image may hold them.
    lose_the_disk(&home);
    let path = home.configure(&urls, None);
    let ids = format!("node: {{id: {NODE}, cluster_id: {CLUSTER}}}\n");
    std::fs::write(&path, ids + &read(&path)).unwrap();
    let bare = load(&path, &Overrides::default()).unwrap();
    let unknown = register(&bare, &home.key, PATIENCE, |_| {}).await;
    assert!(matches!(unknown, Err(RegisterError::NoToken)), "{unknown:?}");
    std::fs::create_dir(home.path("tls")).unwrap();
    std::fs::write(home.path("tls/ca.crt"), gateway.shared.authority.pem()).unwrap();
    let outcome = register(&bare, &home.key, PATIENCE, |_| {}).await.unwrap();
    assert!(matches!(outcome, Outcome::Recovered(_)));
    let count = gateway.seen().heartbeats.len();
    let running = Running::start(&home, &urls, quick());
    gateway.until_heartbeats(count + 1).await;
    running.stop().await;

    // Another key is not this node's, whatever its token says.
    let other = Home::new();
    let config = other.config(&urls, Some(&gateway.shared.token(&other.key.public(), "token-2")));
    let refused = register(&config, &other.key, PATIENCE, |_| {}).await.unwrap_err();
    assert!(refused.is_refusal(Code::TokenUsed), "{refused}");

    // This key on another machine is, and says so.
    lose_the_disk(&home);
    std::fs::create_dir(home.path("tls")).unwrap();
    std::fs::write(home.path("tls/ca.crt"), gateway.shared.authority.pem()).unwrap();
    gateway.seen().registrations.last_mut().unwrap()["hardware_fingerprint"] = "00".repeat(32).into();
    register(&bare, &home.key, PATIENCE, |_| {}).await.unwrap();
    let count = gateway.seen().heartbeats.len();
    let running = Running::start(&home, &urls, quick());
    gateway.until_heartbeats(count + 1).await;
    until_status(&home, "other hardware", |s| {
        s.findings.iter().any(|f| f.starts_with("hardware_changed"))
    })
    .await;
    running.stop().await;
    let seen = gateway.seen();
    assert!(
        seen.sequences.windows(2).all(|w| w[0] < w[1]),
        "{:?}",
        seen.sequences
    );
    assert!(seen.refusals.is_empty(), "{:?}", seen.refusals);
}

#[tokio::test]
async fn a_node_is_recovered_by_any_of_the_cas_in_its_file_and_without_one_it_is_said_what_helps() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    // The node has to know it.
    gateway.behaviour().keeps_ca = true;
    let urls = [gateway.url()];
    let path = home.configure(&urls, None);
    let ids = format!("node: {{id: {NODE}, cluster_id: {CLUSTER}}}\n");
    std::fs::write(&path, ids + &read(&path)).unwrap();
    let bare = load(&path, &Overrides::default()).unwrap();
    let (ours, another) = (gateway.shared.authority.pem(), gateway.shared.another.pem());
    let file = home.path("tls/ca.crt");
    let put = |text: &str| {
        std::fs::create_dir_all(home.path("state")).unwrap();
        lose_the_disk(&home);
        std::fs::create_dir(home.path("tls")).unwrap();
        std::fs::write(&file, text).unwrap();
    };
    for (text, count) in [("none".to_owned(), 0), (ours.repeat(17), 17)] {
        put(&text);
        let refused = register(&bare, &home.key, PATIENCE, |_| {}).await.unwrap_err();
        let said = refused.to_string();
        assert!(
            matches!(refused, RegisterError::NoCa { held, .. } if held == count),
            "{said}"
        );
        for part in ["provider_daemon.tls.ca_cert", "tls/ca.crt", "node-token create"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let pin = |by: &gateway::Authority| by.fingerprint().parse::<CaPin>().unwrap();
    let (old, next) = (pin(&gateway.shared.authority), pin(&gateway.shared.another));
    // While the next one comes, and once it is there.
    for (is_next, trusted) in [(false, vec![old, next]), (true, vec![next])] {
        gateway.behaviour().shows_another = is_next;
        gateway.behaviour().issue_by_another = is_next;
        gateway.behaviour().names = (!is_next, true);
        for text in [another.clone() + &ours, ours.clone() + &another] {
            put(&text);
            let outcome = register(&bare, &home.key, PATIENCE, |_| {}).await.unwrap();
            let Outcome::Recovered(r) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(r.pins(), trusted);
            assert_eq!(read(&file), text, "it is the image's");
        }
        let count = gateway.seen().heartbeats.len();
        let running = Running::start(&home, &urls, quick());
        gateway.until_heartbeats(count + 1).await;
        running.stop().await;
    }
    assert!(gateway.seen().refusals.is_empty());
}

#[tokio::test]
async fn the_cas_of_a_recovered_registration_lie_beside_it_from_the_beginning() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    lose_the_disk(&home);
    gateway.behaviour().names = (true, true);
    let token = gateway.token(&home.key.public());
    let mut config = home.config(&[gateway.url()], Some(&token));
    // Where it lies unless the operator says otherwise.
    config.tls.ca_cert = home.path("state/tls/ca.crt");
    let outcome = register(&config, &home.key, PATIENCE, |_| {}).await.unwrap();
    let Outcome::Recovered(r) = outcome else {
        panic!("{outcome:?}");
    };
    let held = read_certificates(&read(&config.tls.ca_cert));
    let held: Vec<CaPin> = held.iter().map(CaPin::of).collect();
    assert_eq!((held.len(), held), (2, r.pins()));
    // Before the first renewal the gateway is the next CA's, and sends none.
    gateway.behaviour().keeps_ca = true;
    gateway.behaviour().shows_another = true;
    let agent = Agent::new(config, World::real(quick())).unwrap();
    let running = Running::of(agent);
    gateway.until_heartbeats(1).await;
    running.stop().await;
}

#[tokio::test]
async fn a_recovery_takes_no_certificate_of_a_ca_that_was_not_trusted_before() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    lose_the_disk(&home);
    gateway.behaviour().names = (true, true);
    gateway.behaviour().issue_by_another = true;
    let config = home.config(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let e = register(&config, &home.key, PATIENCE, |_| {}).await.unwrap_err();
    assert!(matches!(e, RegisterError::Issued(_)), "{e}");
    assert!(!home.path("state/registration.json").exists());
}

#[tokio::test]
async fn the_pinned_ca_outlives_renewals_and_nothing_of_another_is_written_down() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    gateway.behaviour().certificate_life = Duration::from_secs(6);
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    gateway.behaviour().issue_by_another = true;
    let renewed = home.path("state/tls/client.pem");
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until("a renewal", |s| s.renewals > 0).await;
    // The certificate that it has goes on serving until its end.
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 2).await;
    assert!(!renewed.exists());
    gateway.until("a recovery", |s| s.recoveries > 0).await;
    let expired = |e: &Problem| e.code == "certificate_expired";
    let told = until_status(&home, "no recovery", |s| {
        s.last_error.as_ref().is_some_and(expired)
    })
    .await;
    let error = told.last_error.unwrap();
    assert!(
        error
            .message
            .contains("does not lead to a CA that this node trusts"),
        "{error:?}"
    );
    assert!(!renewed.exists());
    // Once the true CA signs again, it recovers by itself.
    gateway.behaviour().issue_by_another = false;
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    agent.stop().await;
    assert!(renewed.exists());
}

/// Waits until `done` holds of the registration and the CA file in the state directory.
async fn until_trusted(home: &Home, what: &str, done: impl Fn(&[CaPin], usize) -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    let state = StateDir::new(&home.path("state"));
    loop {
        let pins = Registration::load(&state).unwrap().unwrap().pins();
        let file = std::fs::read_to_string(home.path("state/tls/ca.crt")).unwrap_or_default();
        let held = read_certificates(&file).len();
        if done(&pins, held) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {pins:?}, {held} in the file");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_change_of_the_gateways_ca_carries_the_node_over_without_another_registration() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    // Each is renewed after two seconds.
    gateway.behaviour().certificate_life = Duration::from_secs(3);
    registered(&gateway, &home).await;
    gateway.behaviour().next_heartbeat_seconds = 0;
    let pin = |by: &gateway::Authority| by.fingerprint().parse::<CaPin>().unwrap();
    let (old, next) = (pin(&gateway.shared.authority), pin(&gateway.shared.another));
    let start = || {
        let mut config = home.config(&[gateway.url()], None);
        // Where it lies unless the operator says otherwise.
        config.tls.ca_cert = home.path("state/tls/ca.crt");
        Running::of(Agent::new(config, World::real(quick())).unwrap())
    };
    let agent = start();
    gateway.until_heartbeats(1).await;
    // The gateway trusts both, and issues as before.
    gateway.behaviour().names = (true, true);
    until_trusted(&home, "both", |pins, held| pins == [old, next] && held == 2).await;
    // It is the next one's itself, and issues by it.
    gateway.behaviour().issue_by_another = true;
    gateway.behaviour().shows_another = true;
    let renewals = gateway.seen().renewals;
    gateway
        .until("renewals by the next CA", |s| s.renewals > renewals + 1)
        .await;
    // The former one goes.
    gateway.behaviour().names = (false, true);
    until_trusted(&home, "the next one alone", |pins, held| {
        pins == [next] && held == 1
    })
    .await;
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 2).await;
    agent.stop().await;
    {
        let seen = gateway.seen();
        assert_eq!(seen.registrations.len(), 1);
        assert!(seen.refusals.is_empty(), "{:?}", seen.refusals);
    }
    // The next start knows it from its own disk.
    gateway.behaviour().certificate_life = Duration::from_secs(3600);
    gateway.behaviour().keeps_ca = true;
    let n = gateway.seen().heartbeats.len();
    let agent = start();
    gateway.until_heartbeats(n + 1).await;
    agent.stop().await;
    // The former one vouches for nobody any more.
    gateway.behaviour().keeps_ca = false;
    gateway.behaviour().shows_another = false;
    let agent = start();
    until_status(&home, "an error of TLS", |s| {
        s.last_error.as_ref().is_some_and(|e| e.code == "tls_failed")
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_running_agent_takes_a_registration_with_a_gateway_of_another_ca_over() {
    let (before, gateway) = (Gateway::start().await, Gateway::start().await);
    gateway.shared.epoch.store(8, Ordering::SeqCst);
    let home = Home::new();
    registered(&before, &home).await;
    let agent = Running::start(&home, &[gateway.url()], quick());
    let distrusts = |s: &Status| s.last_error.as_ref().is_some_and(|e| e.code == "tls_failed");
    let told = until_status(&home, "an error of TLS", distrusts).await;
    let remedy = told.last_error.unwrap().remedy;
    assert!(remedy.contains("the running agent takes that over"), "{remedy}");
    let token = gateway.shared.token(&home.key.public(), "token-2");
    let config = home.config(&[gateway.url()], Some(&token));
    let outcome = register(&config, &home.key, PATIENCE, |_| {}).await.unwrap();
    assert!(matches!(outcome, Outcome::Registered(_)), "{outcome:?}");
    gateway.until_heartbeats(2).await;
    until_status(&home, "no error", |s| s.last_error.is_none()).await;
    agent.stop().await;
    let seen = gateway.seen();
    assert_eq!(seen.heartbeats[0].report.sequence, 1);
    assert_eq!((seen.replaced, seen.recoveries), (0, 0));
}

#[test]
fn an_issued_certificate_is_taken_only_from_the_pinned_ca_for_this_node_and_in_time() {
    let (ours, other) = (gateway::Authority::new(), gateway::Authority::new());
    let pin: CaPin = ours.fingerprint().parse().unwrap();
    let (cluster, node) = (gateway::CLUSTER.parse().unwrap(), NODE.parse().unwrap());
    let hour = Duration::from_secs(3600);
    let now = gateway::now().0;
    let look = |by: &gateway::Authority, ca: &gateway::Authority, uri: &str, at: u64| {
        let csr = Csr::generate(NODE).unwrap();
        let pem = by.issue(&csr.pem, uri, hour, &Clock::system());
        let identity = Identity::from_pem(std::path::Path::new("new"), &pem, &csr.key_pem).unwrap();
        let ca = pinned(&read_certificates(&ca.pem()), pin)?;
        check_issued(&identity, &[ca], (&cluster, &node), at)
    };
    let uri = certificate_uri(&cluster, &node);
    look(&ours, &ours, &uri, now).unwrap();
    // Our clock may be behind.
    look(&ours, &ours, &uri, now - 86_400).unwrap();
    assert!(matches!(
        look(&ours, &ours, &uri, now + 7200),
        Err(IssuedError::Invalid(_))
    ));
    assert!(matches!(
        look(&other, &ours, &uri, now),
        Err(IssuedError::Invalid(_))
    ));
    assert!(matches!(
        look(&other, &other, &uri, now),
        Err(IssuedError::OtherCa { .. })
    ));
    let another = certificate_uri(&cluster, &"node-0009".parse().unwrap());
    assert!(matches!(
        look(&ours, &ours, &another, now),
        Err(IssuedError::OtherNode)
    ));
    // The key of another request does not fit.
    let (a, b) = (Csr::generate(NODE).unwrap(), Csr::generate(NODE).unwrap());
    let pem = ours.issue(&a.pem, &uri, hour, &Clock::system());
    assert!(Identity::from_pem(std::path::Path::new("new"), &pem, &b.key_pem).is_err());
}

#[tokio::test]
async fn a_ca_file_that_has_changed_counts_after_a_hangup() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    // From here on the node has to know it.
    gateway.behaviour().keeps_ca = true;
    let file = home.path("tls/ca.crt");
    let ours = read(&file);
    std::fs::write(&file, gateway.shared.another.pem()).unwrap();
    let config = home.config(&[gateway.url()], None);
    let mut agent = Agent::new(config.clone(), World::real(quick())).unwrap();
    agent.on_reload(Arc::new(move || Ok(config.clone())), None);
    let running = Running::of(agent);
    let distrusts = |s: &Status| s.last_error.as_ref().is_some_and(|e| e.code == "tls_failed");
    until_status(&home, "an error of TLS", distrusts).await;
    std::fs::write(&file, ours).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(gateway.seen().heartbeats.is_empty(), "nobody has said so yet");
    running.signals.send(Signal::Reload).await.unwrap();
    gateway.until_heartbeats(1).await;
    running.stop().await;
}

#[tokio::test]
async fn a_wrong_clock_is_noticed() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    gateway.behaviour().clock_offset = 90;
    let agent = Running::start(&home, &[gateway.url()], quick());
    gateway.until_heartbeats(1).await;
    agent.stop().await;
    let skew = status(&home).clock_skew_ms.unwrap();
    assert!((88_000..=91_000).contains(&skew), "{skew}");
}

#[tokio::test]
async fn two_agents_cannot_run_on_one_state_directory() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    let agent = Running::start(&home, &[gateway.url()], quick());
    let e = Agent::new(home.config(&[gateway.url()], None), World::real(quick())).unwrap_err();
    assert!(e.to_string().contains("another agent runs"), "{e}");
    agent.stop().await;
}
