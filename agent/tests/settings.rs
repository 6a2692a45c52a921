//! How often the agent measures, in simulated time: by its file, by the gateway, and after a hangup. And which of flag,
//! environment and file counts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gateway::{Home, Site};
use hpc_schema::gateway::ConfigUpdates;
use hpc_schema::heartbeat::{HealthStatus, SlurmState};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use virtengine_node_agent::config::Config;
use virtengine_node_agent::history::History;
use virtengine_node_agent::probe::errors::Errors;
use virtengine_node_agent::probe::memory::Memory;
use virtengine_node_agent::probe::slurm::{Answer, SlurmNode};
use virtengine_node_agent::run::{Agent, Signal};
use virtengine_node_agent::sample::{Category, Collector, Reading, Sampler, Sources};
use virtengine_node_agent::state::StateDir;

const MINUTE: Duration = Duration::from_secs(60);

/// A machine on which nothing ever changes.
struct Still(Category);

impl Collector for Still {
    fn name(&self) -> &'static str {
        "still"
    }
    fn category(&self) -> Category {
        self.0
    }
    fn collect(&mut self, _: Instant) -> Vec<Reading> {
        match self.0 {
            Category::Utilization => vec![Reading::Cpu(Some(40))],
            Category::Capacity => {
                let (total, available) = (64 << 30, 32 << 30);
                vec![
                    Reading::Cores(Some(8)),
                    Reading::Memory(Some(Memory { total, available })),
                ]
            }
            _ => vec![Reading::Temperature(Some(50))],
        }
    }
}

fn sampler(_: &Sources) -> Sampler {
    let categories = [Category::Utilization, Category::Capacity, Category::Temperature];
    Sampler::inline(
        categories
            .map(|c| Box::new(Still(c)) as Box<dyn Collector>)
            .into(),
    )
}

/// Times of the samples of a category.
fn taken(site: &Site, category: Category) -> Vec<u64> {
    let dir = StateDir::new(&site.home.path("state")).history();
    let samples = History::read(&dir, category, 0).unwrap();
    samples.iter().map(|s| s.at).collect()
}

/// Seconds between two samples of each of three categories, as they mostly were in the next twenty minutes.
async fn gaps(site: &Site) -> [u64; 3] {
    // What was set is in force after the next heartbeat.
    tokio::time::sleep(MINUTE).await;
    let begun = site.world.clock.seconds();
    tokio::time::sleep(20 * MINUTE).await;
    [Category::Utilization, Category::Capacity, Category::Temperature].map(|category| {
        let all: Vec<u64> = taken(site, category)
            .into_iter()
            .filter(|at| *at >= begun)
            .collect();
        let mut gaps: Vec<u64> = all.windows(2).map(|w| w[1] - w[0]).collect();
        gaps.sort_unstable();
        *gaps
            .get(gaps.len() / 2)
            .unwrap_or_else(|| panic!("{category:?}: {all:?}"))
    })
}

#[tokio::test(start_paused = true)]
async fn intervals_and_retention_of_the_gateway_and_of_a_hangup_are_in_force() {
    let site = Site::start(sampler).await;
    site.gateway.behaviour().next_heartbeat_seconds = 10;
    let config = site.registered().await;
    let with = |seconds: u64| {
        let mut config = config.clone();
        config.sampling.metrics_buffer_size = 5000;
        let of = Duration::from_secs;
        config.sampling.set_interval(Category::Utilization, of(seconds));
        config
            .sampling
            .set_interval(Category::Temperature, of(seconds + 30));
        config
    };
    let mut agent = Agent::new(with(10), site.world.clone()).unwrap();
    let again = with(30);
    agent.on_reload(Arc::new(move || Ok(again.clone())), None);
    let (signals, received) = mpsc::channel(1);
    let running = tokio::spawn(agent.run(received));
    let near = |seen: [u64; 3], wanted: [u64; 3]| {
        let good = seen.iter().zip(wanted).all(|(s, w)| s.abs_diff(w) <= w / 5);
        assert!(good, "{seen:?}, not {wanted:?}");
    };
    near(gaps(&site).await, [10, 30, 40]);

    // Of capacity, health, utilisation and GPU figures, no longer than they count.
    let set = |seconds, hours| {
        site.gateway.behaviour().config_updates = Some(ConfigUpdates {
            sampling_interval_seconds: Some(seconds),
            metrics_retention_hours: hours,
            ..ConfigUpdates::default()
        });
    };
    set(60, None);
    near(gaps(&site).await, [30, 60, 40]);

    // The file's, but for what the gateway has set.
    signals.send(Signal::Reload).await.unwrap();
    near(gaps(&site).await, [30, 60, 60]);
    // Below the shortest.
    set(1, None);
    near(gaps(&site).await, [5, 10, 60]);
    let notices = gateway::status(&site.home).notices;
    let told = |n: &String| n.starts_with("sampling_interval_seconds of the gateway: 1s");
    assert_eq!(notices.iter().filter(|n| told(n)).count(), 4, "{notices:?}");

    let first = taken(&site, Category::Capacity)[0];
    set(1, Some(1));
    near(gaps(&site).await, [5, 10, 60]);
    let (now, kept) = (site.world.clock.seconds(), taken(&site, Category::Capacity)[0]);
    // What is too old goes with the next sample that is written.
    assert!(
        now - first > 5400 && now - kept <= 3600 + 60,
        "{first} {kept} {now}"
    );
    // Taken back: the newest file's word counts again.
    site.gateway.behaviour().config_updates = None;
    near(gaps(&site).await, [30, 30, 60]);
    let status = gateway::status(&site.home);
    assert!(status.notices.is_empty(), "{:?}", status.notices);
    assert_eq!(status.metrics_retention_seconds, Some(24 * 3600));
    signals.send(Signal::Stop).await.unwrap();
    running.await.unwrap();
}

/// Slurm has drained the node; it answers the collectors of the first configuration alone.
struct Drains(bool);

impl Collector for Drains {
    fn name(&self) -> &'static str {
        "slurm"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn collect(&mut self, _: Instant) -> Vec<Reading> {
        let node = SlurmNode {
            state: SlurmState::Drain,
            state_text: "IDLE+DRAIN".into(),
            reason: Some("bad disk".into()),
            cpus: 8,
            cpus_allocated: 0,
            cpus_usable: 8,
            memory_mib: 64 << 10,
            memory_allocated_mib: 0,
            gpus: None,
            gpus_allocated: None,
            version: None,
        };
        let said = self.0.then_some(Reading::Slurm(Answer::Said(node)));
        said.into_iter().collect()
    }
}

fn drained(sources: &Sources) -> Sampler {
    let all: [Box<dyn Collector>; 3] = [
        Box::new(Still(Category::Utilization)),
        Box::new(Still(Category::Capacity)),
        Box::new(Drains(sources.storage_path != Path::new("/other"))),
    ];
    Sampler::inline(all.into())
}

#[tokio::test(start_paused = true)]
async fn collectors_of_another_configuration_neither_end_a_drain_nor_forget_what_was_measured() {
    let site = Site::start(drained).await;
    let config = site.registered().await;
    let again = Config {
        storage_path: "/other".into(),
        ..config.clone()
    };
    let mut agent = Agent::new(config, site.world.clone()).unwrap();
    agent.on_reload(Arc::new(move || Ok(again.clone())), None);
    let (signals, received) = mpsc::channel(1);
    let running = tokio::spawn(agent.run(received));
    tokio::time::sleep(2 * MINUTE).await;
    let before = site.gateway.seen().heartbeats.len();
    signals.send(Signal::Reload).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    {
        let seen = site.gateway.seen();
        let told = seen.heartbeats.iter().skip(before - 1);
        let told: Vec<_> = told.map(|h| &h.heartbeat.health).collect();
        let all = told.iter().all(|h| h.status == HealthStatus::Draining);
        assert!(all && told.len() > 10, "{told:?}");
        // What it said last counts for as long as it may, and is absent then.
        let drain = Some(SlurmState::Drain);
        assert_eq!((told[0].slurm_state, told[1].slurm_state), (drain, drain));
        assert_eq!(told.last().unwrap().slurm_state, None);
    }
    signals.send(Signal::Stop).await.unwrap();
    running.await.unwrap();
}

/// The kernel has ended a process for want of memory: a finding that leaves a node healthy.
static KILLED: AtomicBool = AtomicBool::new(false);

/// What the kernel has written.
struct Messages;

impl Collector for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }
    fn category(&self) -> Category {
        Category::HealthStatus
    }
    fn collect(&mut self, _: Instant) -> Vec<Reading> {
        let killed = u32::from(KILLED.load(Ordering::Relaxed));
        vec![Reading::Errors(Some(Errors {
            classes: [("oom".to_owned(), killed)].into(),
            ..Errors::default()
        }))]
    }
}

fn with_messages(_: &Sources) -> Sampler {
    let all: [Box<dyn Collector>; 3] = [
        Box::new(Still(Category::Utilization)),
        Box::new(Still(Category::Capacity)),
        Box::new(Messages),
    ];
    Sampler::inline(all.into())
}

#[tokio::test(start_paused = true)]
async fn a_new_finding_halves_intervals_though_the_node_stays_healthy() {
    let site = Site::start(with_messages).await;
    site.gateway.behaviour().next_heartbeat_seconds = 60;
    let mut config = site.registered().await;
    config.sampling.metrics_buffer_size = 5000;
    let agent = Agent::new(config, site.world.clone()).unwrap();
    let (signals, received) = mpsc::channel(1);
    let running = tokio::spawn(agent.run(received));
    // Samples of capacity, which is due every 30 s, in the next 90.
    let seen = async || {
        let begun = site.world.clock.seconds();
        tokio::time::sleep(Duration::from_secs(90)).await;
        let now = site.world.clock.seconds();
        // What is sampled is written with the next round.
        tokio::time::sleep(MINUTE).await;
        let all = taken(&site, Category::Capacity);
        all.iter().filter(|at| (begun..now).contains(*at)).count()
    };
    tokio::time::sleep(5 * MINUTE).await;
    let calm = seen().await;
    assert!((2..=4).contains(&calm), "{calm}");
    KILLED.store(true, Ordering::Relaxed);
    // It is found with the next look, and told out of turn; for two intervals of heartbeats it is news.
    tokio::time::sleep(Duration::from_secs(35)).await;
    let busy = seen().await;
    assert!(busy >= 5, "{busy}, and {calm} before");
    assert_eq!(site.gateway.last().health.status, HealthStatus::Healthy);
    signals.send(Signal::Stop).await.unwrap();
    running.await.unwrap();
}

/// What the configuration is with these flags and variables.
fn checked(home: &Home, environment: &[(&str, &str)], flags: &[&str]) -> Value {
    let out = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
        .args(["config", "check", "--output", "json", "--config"])
        .arg(home.path("config.yaml"))
        .args(flags)
        .env_clear()
        .envs(
            environment
                .iter()
                .map(|(name, value)| (format!("VIRTENGINE_NODE_AGENT_{name}"), value)),
        )
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn each_flag_counts_more_than_its_variable_and_that_more_than_the_file() {
    let home = Home::new();
    let config = home.configure(&["https://file:1".to_owned()], None);
    let text = gateway::read(&config)
        .replace("base_interval: 10s", "base_interval: 11s")
        .replace(
            "slurm:",
            "node: {id: node-file, hostname: host-file}\nprobe: {advertise_address: 192.0.2.11}\nlogging: {level: error}\nslurm:",
        );
    std::fs::write(&config, text).unwrap();
    let variables = [
        ("ENDPOINT", "https://variable:2"),
        ("HEARTBEAT_INTERVAL", "12s"),
        ("NODE_ID", "node-variable"),
        ("HOSTNAME", "host-variable"),
        ("PROBE_ADVERTISE_ADDRESS", "192.0.2.12"),
        ("LOG_LEVEL", "warn"),
    ];
    let flags = [
        "--endpoint",
        "https://flag:3",
        "--heartbeat-interval",
        "13s",
        "--node-id",
        "node-flag",
        "--hostname",
        "host-flag",
        "--probe-advertise-address",
        "192.0.2.13",
        "--log-level",
        "debug",
    ];
    let seen = |from: &Value| {
        [
            "gateways",
            "heartbeat_interval_seconds",
            "node_id",
            "hostname",
            "probe_advertise_address",
            "log_level",
        ]
        .map(|name| from[name].clone())
    };
    let of = |word: &str, n: u64, level: &str| {
        let name = |kind: &str| json!(format!("{kind}-{word}"));
        let gateway = json!([format!("https://{word}:{}", n - 10)]);
        let address = json!(format!("192.0.2.{n}"));
        [
            gateway,
            json!(n),
            name("node"),
            name("host"),
            address,
            json!(level),
        ]
    };
    assert_eq!(seen(&checked(&home, &[], &[])), of("file", 11, "error"));
    assert_eq!(seen(&checked(&home, &variables, &[])), of("variable", 12, "warn"));
    assert_eq!(seen(&checked(&home, &variables, &flags)), of("flag", 13, "debug"));
    assert_eq!(seen(&checked(&home, &[], &flags)), of("flag", 13, "debug"));
}
