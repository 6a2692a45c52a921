//! Out of service and back: each finding of the catalogue in the payload, in `status` and, where the policy says so, in
//! a drain; the return by proof or by force. In simulated time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod evidence;
mod gateway;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gateway::{Site, status};
use hpc_schema::code::Code;
use hpc_schema::heartbeat::{HealthStatus, SlurmState};
use hpc_schema::node::NodeState;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use virtengine_node_agent::clock::instant;
use virtengine_node_agent::config::Config;
use virtengine_node_agent::health::{CATALOGUE, Severity};
use virtengine_node_agent::probe::checks::Checks;
use virtengine_node_agent::probe::errors::Errors;
use virtengine_node_agent::probe::memory::Memory;
use virtengine_node_agent::probe::pci::Gpus;
use virtengine_node_agent::probe::services::ServicesFound;
use virtengine_node_agent::probe::slurm::Answer;
use virtengine_node_agent::register::register_by;
use virtengine_node_agent::run::{Agent, Ended, Signal};
use virtengine_node_agent::sample::{Category, Collector, Reading, Sampler, Sources};
use virtengine_node_agent::state::{ServiceRecord, ServiceWish, StateDir};
use virtengine_node_agent::status::judge;

const MINUTE: Duration = Duration::from_secs(60);

/// A machine without a fault, but for what a file lists: `code message` as root rehearses it, `!code` by the evidence of
/// its collectors, `slurm idle` and `slurm drain REASON`.
struct Machine {
    category: Category,
    faults: PathBuf,
    /// The simulated wall clock.
    start: (Instant, u64),
}

impl Collector for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }
    fn category(&self) -> Category {
        self.category
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        let text = fs::read_to_string(&self.faults).unwrap_or_default();
        let unix = self.start.1 + now.saturating_duration_since(self.start.0).as_secs();
        let mut readings = self.sound(now, &text);
        let provoked = text.lines().filter_map(|l| l.strip_prefix('!'));
        readings.extend(provoked.filter_map(|code| evidence::of(code, self.category, now, unix)));
        if self.category == Category::Capacity {
            readings.extend(text.lines().filter_map(|l| match l.split_once(' ') {
                Some(("slurm", "idle")) => Some(evidence::slurm(SlurmState::Idle, "")),
                Some(("slurm", said)) => Some(evidence::slurm(
                    SlurmState::Drain,
                    said.strip_prefix("drain ").unwrap(),
                )),
                _ => None,
            }));
        }
        readings
    }
}

impl Machine {
    fn sound(&self, now: Instant, text: &str) -> Vec<Reading> {
        match self.category {
            Category::Capacity => vec![
                Reading::Cores(Some(8)),
                Reading::Memory(Some(Memory {
                    total: 64 << 30,
                    available: 32 << 30,
                })),
                Reading::Storage(None),
                Reading::PciGpus(Some(Gpus::default())),
                Reading::Slurm(Answer::NotHere),
            ],
            Category::HealthStatus => {
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
                Reading::Sensors(Vec::new()),
                Reading::MemoryErrors(Vec::new()),
                Reading::Ports(Vec::new()),
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
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let machine = |category| {
        Box::new(Machine {
            category,
            faults: sources.memory_dir.join("faults"),
            start: (instant(), unix),
        }) as Box<dyn Collector>
    };
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
        Self::start_on(|_| {}).await
    }

    /// On a machine that the configuration finds elsewhere.
    async fn start_on(change: impl FnOnce(&mut Site)) -> Self {
        let mut site = Site::start(sampler).await;
        change(&mut site);
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
    for kind in CATALOGUE.iter().filter(|k| !evidence::OWN.contains(&k.code)) {
        let code = kind.code;
        let word = evidence::word(code);
        let expected = match kind.severity {
            Severity::Notice => HealthStatus::Healthy,
            Severity::Degraded => HealthStatus::Degraded,
            Severity::Unhealthy => HealthStatus::Unhealthy,
            Severity::Draining => HealthStatus::Draining,
        };
        node.faults(&format!("!{code}\n"));
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
            shown.contains(word) && shown.ends_with(kind.action.advice()),
            "{shown}"
        );
        // In the payload.
        node.until(code, 2 * MINUTE, |status, why| {
            status == expected && (expected == HealthStatus::Healthy || why.contains(word))
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
        self.wish_of(id, force, self.site.world.clock.seconds()).await
    }

    async fn wish_of(&self, id: &str, force: bool, at: u64) -> (String, String) {
        let wish = ServiceWish {
            id: id.into(),
            at,
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
        node.wish("w0", false).await,
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
    let late = node.site.world.clock.seconds() - 61;
    let (what, why) = node.wish_of("late", true, late).await;
    assert!(what == "refused" && why.contains("ask again"), "{what} {why}");
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

#[tokio::test(start_paused = true)]
async fn a_second_gpu_that_fails_drains_though_the_first_is_pardoned() {
    let node = Node::start().await;
    node.until_healthy("the start", 2 * MINUTE).await;
    node.drained().await;
    assert_eq!(node.wish("w1", true).await.0, "forced");
    node.until("the return", 2 * MINUTE, |s, _| s == HealthStatus::Degraded)
        .await;
    node.faults("gpu_lost it is gone\ngpu_lost and another one\n");
    let second = |status, why: &str| {
        status == HealthStatus::Draining && why.contains("another one") && !why.contains("it is gone")
    };
    node.until("the second drain", 5 * MINUTE, second).await;
}

#[tokio::test(start_paused = true)]
async fn an_administrator_who_resumes_the_node_in_slurm_has_returned_it_by_force() {
    let node = Node::start().await;
    node.until_healthy("the start", 2 * MINUTE).await;
    let what = |code: &str| {
        let log = ServiceRecord::load(&node.state()).unwrap().log;
        log.iter().filter(|c| c.what == code).cloned().collect::<Vec<_>>()
    };
    // A drain of the administrator's own that ends is none of ours: Slurm is told again, and the node stays out.
    node.faults("gpu_lost it is gone\nslurm drain bad fan\n");
    node.until("the drain", 5 * MINUTE, |s, why| {
        s == HealthStatus::Draining && why.contains("out of service")
    })
    .await;
    tokio::time::sleep(2 * MINUTE).await;
    node.faults("gpu_lost it is gone\nslurm idle\n");
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(node.reported().unwrap().0, HealthStatus::Draining);
    assert!(what("forced").is_empty());
    // Slurm shows our drain, and then gives the node jobs.
    node.faults("gpu_lost it is gone\nslurm drain virtengine health: gpu_lost\n");
    tokio::time::sleep(2 * MINUTE).await;
    assert!(ServiceRecord::load(&node.state()).unwrap().shown);
    node.faults("gpu_lost it is gone\nslurm idle\n");
    node.until("the return", 3 * MINUTE, |s, _| s == HealthStatus::Degraded)
        .await;
    let forced = what("forced");
    assert_eq!((forced.len(), forced[0].by.as_str()), (1, "Slurm"), "{forced:?}");
    assert!(
        forced[0].why.contains("an administrator has resumed"),
        "{forced:?}"
    );
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(
        node.reported().unwrap().0,
        HealthStatus::Degraded,
        "pardoned while it lasts"
    );
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_and_hardware_that_changed_are_in_payload_and_status_until_they_are_mended() {
    let machine = |site: &mut Site, serial: &str| {
        let sys = site.home.path(&format!("sys-{serial}"));
        fs::create_dir_all(sys.join("class/dmi/id")).unwrap();
        fs::write(sys.join("class/dmi/id/product_serial"), serial).unwrap();
        site.config.roots.sys = sys;
    };
    let mut node = Node::start_on(|site| machine(site, "first")).await;
    node.until_healthy("the start", 2 * MINUTE).await;
    let finds = |node: &Node, code: &str| {
        status(&node.site.home)
            .findings
            .iter()
            .any(|f| f.starts_with(code))
    };
    node.site.skew.store(-30, Ordering::Relaxed);
    node.until("the skew", 2 * MINUTE, |s, why| {
        s == HealthStatus::Degraded && why.contains("s behind")
    })
    .await;
    assert!(finds(&node, "clock_skew: "));
    node.site.skew.store(0, Ordering::Relaxed);
    node.until_healthy("the clock", 4 * MINUTE).await;

    machine(&mut node.site, "second");
    node.restart().await;
    node.until("other hardware", 2 * MINUTE, |s, _| s == HealthStatus::Degraded)
        .await;
    assert!(finds(&node, "hardware_changed: "));
    machine(&mut node.site, "first");
    node.restart().await;
    node.until_healthy("the old hardware", 4 * MINUTE).await;
}

impl Node {
    /// Waits until `status` names this trouble with a remedy.
    async fn until_told(&self, code: &str, within: Duration) {
        let start = instant();
        loop {
            let now = self.site.world.clock.seconds();
            let problems = judge(Some(&status(&self.site.home)), true, now).problems;
            if problems.iter().any(|p| p.code == code && !p.remedy.is_empty()) {
                return;
            }
            let waited = instant().saturating_duration_since(start);
            assert!(waited < within, "{code}: not within {within:?}: {problems:?}");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_says_or_does_not_say_is_told_by_status_with_its_remedy() {
    let node = Node::start().await;
    node.until_healthy("the start", 2 * MINUTE).await;
    for code in [
        Code::TimestampExpired,
        Code::TimestampInFuture,
        Code::KeyMismatch,
        Code::NodeDisabled,
        Code::InvalidField,
        Code::InvalidCapacity,
        Code::UnknownNode,
        Code::UnknownCluster,
    ] {
        let heartbeats = node.site.gateway.seen().heartbeats.len();
        // Who is not known asks again sooner than somebody looks here.
        let times = if code == Code::UnknownNode { 4 } else { 1 };
        let refusals = std::iter::repeat_n(code, times);
        node.site.gateway.behaviour().refuse.extend(refusals);
        node.until_told(code.as_str(), 2 * MINUTE).await;
        // The next one is taken: the trouble is over.
        let start = instant();
        while node.site.gateway.seen().heartbeats.len() <= heartbeats {
            assert!(instant().saturating_duration_since(start) < 2 * MINUTE, "{code}");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
    node.site.down.store(true, Ordering::Relaxed);
    if let Some(wire) = node.site.wire.lock().unwrap().take() {
        wire.abort();
    }
    node.until_told("gateway_unreachable", 5 * MINUTE).await;
    node.site.down.store(false, Ordering::Relaxed);
    node.site.gateway.behaviour().hang = true;
    node.until_told("gateway_timeout", 5 * MINUTE).await;
    node.site.gateway.behaviour().hang = false;
    node.until_healthy("the gateway", 5 * MINUTE).await;
    node.site.gateway.behaviour().node_state = NodeState::Pending;
    node.until_told("cluster_inactive", 2 * MINUTE).await;
    node.site.gateway.behaviour().node_state = NodeState::Active;
    node.site.gateway.behaviour().settles = false;
    node.until_told("no_chain_updates", 15 * MINUTE).await;
}
