//! Two gateways on one PostgreSQL, real processes, one of them killed at a random moment, again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use reqwest::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::agent::Agent;
use crate::process::{Process, beat};
use crate::site::{Site, eventually};

const AGENTS: usize = 3;
/// The bound.
const TAKEOVER: Duration = Duration::from_secs(10);

/// The keys, CA and configuration of the site for a second gateway.
pub(crate) fn second_home(site: &Site) -> PathBuf {
    let to = site.home().with_file_name("second");
    std::fs::create_dir(&to).unwrap();
    for entry in ["ca", "gateway", "keys", "config.yaml"] {
        copy(&site.home().join(entry), &to.join(entry));
    }
    to
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
    let mode = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, mode).unwrap();
}

pub(crate) async fn settles(process: &Process) -> bool {
    let Ok(response) = reqwest::get(format!("http://{}/metrics", process.ops)).await else {
        return false;
    };
    let text = response.text().await.unwrap_or_default();
    text.lines().any(|line| line == "virtengine_provider_settles 1")
}

struct Pair {
    site: Site,
    homes: [PathBuf; 2],
    gateways: [Option<Process>; 2],
    agents: Vec<(Agent, Client)>,
    sequence: u32,
    accepted: BTreeMap<usize, BTreeSet<u32>>,
    chance: StdRng,
}

impl Pair {
    async fn start(seed: u64) -> Self {
        let mut site = Site::start().await;
        let mut agents = Vec::new();
        for n in 0..AGENTS {
            let agent = Agent::enrolled(&site, &format!("node-{n:04}")).await;
            let client = agent.client(&site);
            agents.push((agent, client));
        }
        site.stop_daemon().await;
        let homes = [site.home(), second_home(&site)];
        let mut pair = Self {
            site,
            homes,
            gateways: [None, None],
            agents,
            sequence: 0,
            accepted: BTreeMap::new(),
            chance: StdRng::seed_from_u64(seed),
        };
        pair.up(0);
        pair.up(1);
        pair
    }

    fn up(&mut self, n: usize) {
        self.gateways[n] = Some(Process::start_at(&self.homes[n], &self.site, None, &[]));
    }

    /// The next heartbeat of every agent, each to one of the gateways that run.
    async fn beat(&mut self) {
        self.sequence += 1;
        for (at, (agent, client)) in self.agents.iter().enumerate() {
            let first = self.chance.random_range(0..2);
            for n in [first, 1 - first] {
                let Some(gateway) = &self.gateways[n] else {
                    continue;
                };
                if beat(agent, client, gateway.port, self.sequence).await {
                    self.accepted.entry(at).or_default().insert(self.sequence);
                    break;
                }
            }
        }
    }

    async fn beat_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.beat().await;
            sleep(Duration::from_millis(60)).await;
        }
    }

    async fn leader(&self) -> Option<usize> {
        for (n, gateway) in self.gateways.iter().enumerate() {
            if let Some(gateway) = gateway
                && settles(gateway).await
            {
                return Some(n);
            }
        }
        None
    }

    async fn wait_leader(&mut self) -> usize {
        let asked = Instant::now();
        loop {
            if let Some(n) = self.leader().await {
                return n;
            }
            assert!(asked.elapsed() < TAKEOVER, "nobody settles");
            self.beat().await;
        }
    }
}

/// The kills of a run are shared out among seeds, each with a pair and a store of its own: one of the few runs of continuous
/// integration, twenty where there are many. `HPC_TEST_SEED` runs one of them again.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_gateways_either_may_die_at_any_moment_and_every_accepted_report_ends_once() {
    let runs: u64 = std::env::var("HPC_TEST_RUNS").map_or(3, |n| n.parse().unwrap());
    let count = (runs / 5).clamp(1, 20);
    let seeds: Vec<u64> = match std::env::var("HPC_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (7..7 + count).collect(),
    };
    for seed in seeds {
        Box::pin(one_dies_again_and_again(seed, runs.div_ceil(count))).await;
    }
}

async fn one_dies_again_and_again(seed: u64, rounds: u64) {
    println!("seed {seed}: {rounds} kills");
    let mut pair = Pair::start(seed).await;
    let (mut takeovers, mut slowest) = (0, Duration::ZERO);
    for round in 0..rounds {
        let leader = pair.wait_leader().await;
        let moment = pair.chance.random_range(0..900);
        pair.beat_for(Duration::from_millis(300 + moment)).await;
        // The one that settles more often than not: the other has little to lose.
        let dies = if pair.chance.random_range(0..4) == 0 {
            1 - leader
        } else {
            leader
        };
        drop(pair.gateways[dies].take());
        let died = Instant::now();
        let now = pair.wait_leader().await;
        assert!(
            now != dies && died.elapsed() < TAKEOVER,
            "seed {seed}, round {round}: {:?}",
            died.elapsed()
        );
        if dies == leader {
            takeovers += 1;
            slowest = slowest.max(died.elapsed());
        }
        // What comes from here on is settled by the one that is left.
        pair.beat().await;
        let newest = pair.sequence;
        for at in 0..AGENTS {
            let node = pair.agents[at].0.node.clone();
            if pair.accepted.get(&at).is_some_and(|all| all.contains(&newest)) {
                pair.site.wait_sequence(&node, newest).await;
            }
        }
        pair.up(dies);
    }
    println!("seed {seed}: {rounds} kills, {takeovers} takeovers, the slowest after {slowest:?}");
    pair.wait_leader().await;
    everything_ended(&mut pair).await;
}

/// Every accepted sequence lies within the range of a recorded end, every record is one effect on chain, and no
/// transaction is open.
async fn everything_ended(pair: &mut Pair) {
    pair.beat().await;
    let last = pair.sequence;
    let mut on_record = 0;
    for at in 0..AGENTS {
        let node = pair.agents[at].0.node.clone();
        assert!(
            pair.accepted[&at].contains(&last),
            "both gateways take heartbeats again"
        );
        pair.site.wait_sequence(&node, last).await;
        let mut shown = Value::Null;
        eventually("every end on record", async || {
            let show = ["node", "show", &node, "--reports", "1000", "-o", "json"];
            shown = serde_json::from_str(&pair.site.run(&show).0).unwrap();
            let status: Value = serde_json::from_str(&pair.site.run(&["status", "-o", "json"]).0).unwrap();
            shown["reports"][0]["sequence"] == last
                && status["open_transactions"] == 0
                && status["reports_waiting"] == 0
                && status["reports_in_transactions"] == 0
        })
        .await;
        let ends = shown["reports"].as_array().unwrap();
        for s in &pair.accepted[&at] {
            let covered = ends.iter().any(|e| {
                let of = e["sequence"].as_u64().unwrap();
                let from = e["superseded_from"].as_u64().unwrap_or(of);
                (from..=of).contains(&u64::from(*s))
            });
            assert!(covered, "{s} of {node} was accepted and has no end: {shown}");
        }
        assert!(ends.iter().all(|e| e["ended"] == "on_chain"), "{shown}");
        on_record += u64::try_from(ends.len()).unwrap();
    }
    let (reports, _) = pair.site.accepted_on_chain().await;
    assert_eq!(
        reports, on_record,
        "one effect a record, and none that is not on record"
    );
}
