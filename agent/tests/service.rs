//! Out of service and back: each finding of the catalogue in the payload, in `status` and, where the policy says so, in
//! a drain; the return by proof or by force. In simulated time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gateway::{Site, status};
use hpc_schema::heartbeat::HealthStatus;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use virtengine_node_agent::clock::instant;
use virtengine_node_agent::config::Config;
use virtengine_node_agent::health::{CATALOGUE, Severity};
use virtengine_node_agent::probe::checks::Checks;
use virtengine_node_agent::probe::errors::Errors;
use virtengine_node_agent::probe::memory::Memory;
use virtengine_node_agent::probe::services::ServicesFound;
use virtengine_node_agent::probe::slurm::Answer;
use virtengine_node_agent::register::register_by;
use virtengine_node_agent::run::{Agent, Ended, Signal};
use virtengine_node_agent::sample::{Category, Collector, Instruments, Reading, Sampler, Sources};
use virtengine_node_agent::state::{ServiceRecord, ServiceWish, StateDir};
use virtengine_node_agent::status::judge;

const MINUTE: Duration = Duration::from_secs(60);

/// A machine without a fault, but for what a file lists: `code message`, as root rehearses it.
struct Machine(Category, PathBuf);

impl Collector for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }
    fn category(&self) -> Category {
        self.0
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        match self.0 {
            Category::Capacity => vec![
                Reading::Cores(Some(8)),
                Reading::Memory(Some(Memory {
                    total: 64 << 30,
                    available: 32 << 30,
                })),
                Reading::Storage(None),
                Reading::Slurm(Answer::NotHere),
            ],
            Category::HealthStatus => {
                let text = fs::read_to_string(&self.1).unwrap_or_default();
                let rehearsed = text
                    .lines()
                    .filter_map(|l| l.split_once(' '))
                    .map(|(c, m)| (c.to_owned(), m.to_owned()));
                vec![
                    Reading::Uptime(Some(1000)),
                    Reading::Pressure(Vec::new()),
                    Reading::Errors(Some(Errors::default())),
                    Reading::Checks(Checks {
                        ran: Some(now),
                        rehearsed: rehearsed.collect(),
                        ..Checks::default()
                    }),
                ]
            }
            Category::Gpu => vec![Reading::Gpus(None)],
            Category::JobCounts => vec![Reading::Services(ServicesFound::default())],
            _ => vec![
                Reading::Temperature(Some(50)),
                Reading::Instruments(Instruments::default()),
            ],
        }
    }
}

fn sampler(sources: &Sources) -> Sampler {
    let categories = [
        Category::Capacity,
        Category::HealthStatus,
        Category::Gpu,
        Category::JobCounts,
        Category::Temperature,
    ];
    let machine = |c| Box::new(Machine(c, sources.memory_dir.join("faults"))) as Box<dyn Collector>;
    Sampler::inline(categories.map(machine).into())
}

/// A node in simulated time.
struct Node {
    site: Site,
    signals: mpsc::Sender<Signal>,
    agent: JoinHandle<Ended>,
}

impl Node {
    async fn start() -> Self {
        let site = Site::start(sampler).await;
        let way = (&site.world.clock, &site.world.dial);
        register_by(&site.config, &site.home.key, Some(MINUTE), way, |_| {})
            .await
            .unwrap();
        site.gateway.behaviour().next_heartbeat_seconds = 10;
        let (signals, agent) = Self::agent(&site);
        Self { site, signals, agent }
    }

    fn agent(site: &Site) -> (mpsc::Sender<Signal>, JoinHandle<Ended>) {
        let config = Config {
            token: None,
            ..site.config.clone()
        };
        let agent = Agent::new(config, site.world.clone()).unwrap();
        let (signals, receiver) = mpsc::channel(1);
        (signals, tokio::spawn(agent.run(receiver)))
    }

    async fn restart(&mut self) {
        self.signals.send(Signal::Stop).await.unwrap();
        (&mut self.agent).await.unwrap();
        (self.signals, self.agent) = Self::agent(&self.site);
    }

    fn state(&self) -> StateDir {
        StateDir::new(&self.site.home.path("state"))
    }

    fn faults(&self, lines: &str) {
        fs::write(self.site.home.path("state/faults"), lines).unwrap();
    }

    /// What the last heartbeat said, and why.
    fn reported(&self) -> Option<(HealthStatus, String)> {
        let seen = self.site.gateway.seen();
        let h = &seen.heartbeats.last()?.heartbeat.health;
        let why = h.last_error_message.as_ref().map(|t| t.as_str().to_owned());
        Some((h.status, why.unwrap_or_default()))
    }

    /// Waits in simulated time until the last heartbeat says so.
    async fn until(&self, what: &str, within: Duration, good: impl Fn(HealthStatus, &str) -> bool) {
        let start = instant();
        loop {
            let last = self.reported();
            if last.as_ref().is_some_and(|(status, why)| good(*status, why)) {
                return;
            }
            let waited = instant().saturating_duration_since(start);
            assert!(waited < within, "{what}: not within {within:?}: {last:?}");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    async fn until_healthy(&self, what: &str, within: Duration) {
        self.until(what, within, |status, _| status == HealthStatus::Healthy)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_finding_is_in_payload_and_status_and_where_the_policy_says_so_in_a_drain_and_a_return() {
    let node = Node::start().await;
    node.until_healthy("the start", 2 * MINUTE).await;
    // What the agent finds of itself has tests of its own: nobody can put it in from outside.
    let own = ["out_of_service"];
    for kind in CATALOGUE.iter().filter(|k| !own.contains(&k.code)) {
        let code = kind.code;
        let expected = match kind.severity {
            Severity::Notice => HealthStatus::Healthy,
            Severity::Degraded => HealthStatus::Degraded,
            Severity::Unhealthy => HealthStatus::Unhealthy,
            Severity::Draining => HealthStatus::Draining,
        };
        node.faults(&format!("{code} marked by the test\n"));
        // In `status`, with what to do.
        let start = instant();
        let shown = loop {
            let s = status(&node.site.home);
            if let Some(line) = s.findings.iter().find(|f| f.starts_with(&format!("{code}: "))) {
                break line.clone();
            }
            assert!(
                instant().saturating_duration_since(start) < 2 * MINUTE,
                "{code} in {s:?}"
            );
            tokio::time::sleep(Duration::from_secs(5)).await;
        };
        assert!(
            shown.contains("marked by the test") && shown.ends_with(kind.action.advice()),
            "{shown}"
        );
        // In the payload.
        node.until(code, 2 * MINUTE, |status, why| {
            status == expected && (expected == HealthStatus::Healthy || why.contains("marked by the test"))
        })
        .await;
        let now = node.site.world.clock.seconds();
        let problems = judge(Some(&status(&node.site.home)), true, now).problems;
        let told = problems
            .iter()
            .any(|p| p.code == "node_health" && p.message.contains(code));
        assert_eq!(told, expected != HealthStatus::Healthy, "{code}: {problems:?}");
        if let Some(after) = kind.drains() {
            let words = format!("out of service for {code}: ");
            node.until(code, after + 2 * MINUTE, |status, why| {
                status == HealthStatus::Draining && why.contains(&words)
            })
            .await;
            let out = status(&node.site.home).service.unwrap();
            assert_eq!(out.reasons[0].code, code);
            node.faults("");
            // Not before its time, and then by itself.
            tokio::time::sleep(kind.stays() + 9 * MINUTE).await;
            assert_eq!(node.reported().unwrap().0, HealthStatus::Draining, "{code}");
            node.until_healthy(code, 4 * MINUTE).await;
        } else {
            tokio::time::sleep(6 * MINUTE).await;
            assert_eq!(node.reported().unwrap().0, expected, "{code} drains");
            node.faults("");
            node.until_healthy(code, kind.stays() + 2 * MINUTE).await;
        }
    }
    let log = ServiceRecord::load(&node.state()).unwrap().log;
    let drains = CATALOGUE.iter().filter(|k| k.drains().is_some()).count();
    assert_eq!(log.iter().filter(|c| c.what == "out").count(), drains);
    assert_eq!(
        log.iter()
            .filter(|c| c.what == "returned" && c.by == "policy")
            .count(),
        drains
    );
}

impl Node {
    /// What came of a wish.
    async fn wish(&self, id: &str, force: bool) -> (String, String) {
        let wish = ServiceWish {
            id: id.into(),
            at: 0,
            by: "uid 0 (alice)".into(),
            force,
            reason: "a new card".into(),
        };
        wish.put(&self.state()).unwrap();
        let start = instant();
        loop {
            let record = ServiceRecord::load(&self.state()).unwrap();
            if let Some(c) = record.log.iter().find(|c| c.wish.as_deref() == Some(id)) {
                return (c.what.clone(), format!("{}: {}", c.by, c.why));
            }
            assert!(instant().saturating_duration_since(start) < MINUTE);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn drained(&self) {
        self.faults("gpu_lost it is gone\n");
        let good = |status, why: &str| status == HealthStatus::Draining && why.contains("gpu_lost");
        self.until("the drain", 5 * MINUTE, good).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_outlives_a_restart_and_only_proof_or_recorded_force_ends_it() {
    let mut node = Node::start().await;
    node.until_healthy("the start", 2 * MINUTE).await;
    assert_eq!(
        node.wish("w0", true).await,
        ("refused".into(), "uid 0 (alice): the node is in service".into())
    );
    node.drained().await;
    node.restart().await;
    node.until("after the restart", MINUTE, |status, why| {
        status == HealthStatus::Draining && why.contains("out of service for gpu_lost")
    })
    .await;
    // Without proof there is no return but by force, which is on record; what is known does not drain again.
    let (what, why) = node.wish("w1", false).await;
    assert!(
        what == "refused" && why.contains("waits for the findings to end"),
        "{what} {why}"
    );
    let (what, why) = node.wish("w2", true).await;
    assert!(
        what == "forced" && why.starts_with("uid 0 (alice): a new card (without "),
        "{what} {why}"
    );
    node.until("the forced return", 2 * MINUTE, |status, _| {
        status == HealthStatus::Degraded
    })
    .await;
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(
        node.reported().unwrap().0,
        HealthStatus::Degraded,
        "pardoned while it lasts"
    );
    // Once it was well, the same finding drains again.
    node.faults("");
    node.until_healthy("the repair", 10 * MINUTE).await;
    node.drained().await;
    // With proof a person need not wait for the time to pass.
    node.faults("");
    tokio::time::sleep(8 * MINUTE).await;
    assert_eq!(node.reported().unwrap().0, HealthStatus::Draining);
    assert_eq!(node.wish("w3", false).await.0, "returned");
    node.until_healthy("the return", 2 * MINUTE).await;
}
