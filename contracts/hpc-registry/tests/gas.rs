//! What storage and bytes cost, by the chain's own prices: a guard between two benches on wasmd, which also meters
//! the wasm itself. `cargo test -p hpc-registry --test gas -- --nocapture` prints the table.
// Helpers outside of test functions may fail as tests do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value
)]

mod common;

use common::*;
use serde_json::json;

/// Unpinned contract, zero fee, one message (docs/performance figures of wasmd 0.70.3).
const FIXED: u64 = 96_300;
const PER_BYTE: u64 = 10;

/// Storage, bytes and signatures of one submitted message, an all-but-wasm estimate.
fn cost(chain: &mut Chain, agents: &mut [Agent], change: fn(&mut Agent)) -> u64 {
    chain.advance(30);
    let now = chain.now();
    let reports = agents
        .iter_mut()
        .map(|a| {
            change(a);
            let report = a.healthy(now);
            (a.clone(), report)
        })
        .collect::<Vec<_>>();
    let msg = batch(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    let bytes = msg.to_string().len() as u64;
    chain.deps.storage.take_gas();
    let response = chain.anyone_sends(msg).unwrap();
    let answer: hpc_schema::registry::SubmitAnswer = data(&response);
    assert_eq!(answer.accepted as usize, agents.len());
    let calls = (agents.len() as u64).div_ceil(256);
    FIXED + bytes * PER_BYTE + chain.deps.storage.take_gas() + calls * 171 + agents.len() as u64 * 150
}

fn third_round(clusters: usize, nodes: usize, change: fn(&mut Agent)) -> u64 {
    let mut chain = Chain::bare();
    let mut agents = Vec::new();
    for c in 0..clusters {
        let cluster = format!("hpc-cluster-{c}");
        chain.create_cluster(&cluster);
        agents.extend(chain.register_many(&cluster, nodes));
    }
    for _ in 0..2 {
        cost(&mut chain, &mut agents, |_| {});
    }
    cost(&mut chain, &mut agents, change)
}

#[test]
fn storage_and_bytes_of_a_report_stay_within_budget() {
    let mut over = Vec::new();
    for (name, clusters, nodes, change, budget) in [
        ("50", 1, 50, (|_: &mut Agent| {}) as fn(&mut Agent), 4_850),
        ("256", 1, 256, |_| {}, 3_130),
        ("10 x 5", 10, 5, |_| {}, 7_000),
        (
            "50, all job ids change",
            1,
            50,
            |a| {
                a.section.jobs = vec![format!("slurm-{}", a.sequence)];
                a.attach = true;
            },
            12_500,
        ),
    ] {
        let per_report = third_round(clusters, nodes, change) / (clusters * nodes) as u64;
        println!("{name:>24}: {per_report} gas a report without the wasm's own work");
        if per_report > budget {
            over.push((name, per_report, budget));
        }
    }
    assert!(over.is_empty(), "over budget: {over:?}");
}

#[test]
fn registrations_stay_within_budget_while_a_page_fills() {
    let mut chain = Chain::new();
    let (mut sum, mut worst) = (0, 0);
    for i in 0..64 {
        let mut agent = Agent::new(CLUSTER, &format!("node-hpc1-compute-{i:03}"));
        agent.fingerprint = Some(format!("{i:064x}"));
        let msg = agent.registration(&mut chain);
        let bytes = msg.to_string().len() as u64;
        chain.deps.storage.take_gas();
        let response = chain.anyone_sends(msg).unwrap();
        agent.placed(&data(&response));
        let gas = FIXED + bytes * PER_BYTE + chain.deps.storage.take_gas() + 686;
        sum += gas;
        worst = worst.max(gas);
        // Real nodes report between two registrations, so that section pages are there.
        chain.beat(&mut agent);
    }
    println!("register: {} on average, {worst} at worst", sum / 64);
    assert!(sum / 64 <= 300_000 && worst <= 370_000);
}

#[test]
fn sweeps_stay_within_budget() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 256);
    let now = chain.now();
    for chunk in agents.chunks_mut(128) {
        let reports: Vec<_> = chunk.iter_mut().map(|a| (a.clone(), a.healthy(now))).collect();
        chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    }
    let gas = |chain: &mut Chain| {
        chain.deps.storage.take_gas();
        let response = chain.anyone_sends(json!({"sweep": {"limit": 16}})).unwrap();
        let events: usize = response
            .events
            .iter()
            .map(|e| {
                20 + e
                    .attributes
                    .iter()
                    .map(|a| 10 + a.key.len() + a.value.len())
                    .sum::<usize>()
                    + 100
            })
            .sum();
        (FIXED / 4 + chain.deps.storage.take_gas() + events as u64) / 256
    };
    let idle = gas(&mut chain);
    chain.advance(121);
    let stale = gas(&mut chain);
    println!("sweep: {idle} a node unchanged, {stale} all going stale");
    assert!(idle <= 300 && stale <= 1_500);
}

#[test]
fn changes_of_one_node_in_a_full_page_stay_within_budget() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 64);
    let now = chain.now();
    let reports: Vec<_> = agents.iter_mut().map(|a| (a.clone(), a.healthy(now))).collect();
    chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    let node = json!({"cluster_id": CLUSTER, "node_id": "node-0063"});
    let mut over = Vec::new();
    for (name, wait, budget) in [
        ("drain_node", 0, 175_000),
        ("resume_node", 0, 175_000),
        ("deregister_node", 0, 175_000),
        ("prune", 30 * 86_400 + 1, 450_000),
    ] {
        chain.advance(wait);
        let msg = if name == "prune" {
            json!({"prune": {"limit": 1}})
        } else {
            json!({name: node})
        };
        let bytes = msg.to_string().len() as u64;
        chain.deps.storage.take_gas();
        chain.provider_sends(msg).unwrap();
        let gas = FIXED + bytes * PER_BYTE + chain.deps.storage.take_gas();
        println!("{name:>24}: {gas}");
        if gas > budget {
            over.push((name, gas, budget));
        }
    }
    assert!(over.is_empty(), "over budget: {over:?}");
}

#[test]
fn a_prune_writes_each_page_once() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 64);
    let now = chain.now();
    let reports: Vec<_> = agents.iter_mut().map(|a| (a.clone(), a.healthy(now))).collect();
    chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    for agent in &agents {
        chain
            .provider_sends(json!({"deregister_node": {"node_id": agent.id}}))
            .unwrap();
    }
    chain.advance(30 * 86_400 + 1);
    chain.deps.storage.take_gas();
    let pruned = chain.anyone_sends(json!({"prune": {"limit": 64}})).unwrap();
    assert_eq!(data::<hpc_schema::registry::PruneAnswer>(&pruned).removed, 64);
    let gas = chain.deps.storage.take_gas() / 64;
    println!("prune of a full page: {gas} a node");
    assert!(gas <= 25_000);
}
