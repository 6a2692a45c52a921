//! What the largest answers read, by the chain's own prices: nodes stop a smart query at 3,000,000 gas.
//! `cargo test -p hpc-registry --test query_gas -- --nocapture` prints the table.
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
use hpc_schema::report::Measurement;
use serde_json::{Value, json};

/// What reads may take of the 3,000,000 that wasmd lets a smart query spend; the rest is for the wasm's own work.
const READS: u64 = 2_600_000;

/// A type for which a cluster has no number left.
const LATE: &str = "the 256th type";

/// A page of 64 nodes, each with the largest section and a drain, then the same page again up to `pages`.
fn full(pages: u16) -> Chain {
    let mut chain = Chain::new();
    let plain = json!({"update_cluster": {"cluster_id": CLUSTER, "job_ids": "plain"}});
    chain.provider_sends(plain).unwrap();
    // As many GPU types as a cluster tells apart, of the longest names.
    let types: Vec<u8> = (0..255)
        .flat_map(|n| [&[64][..], format!("{n:064}").as_bytes()].concat())
        .collect();
    let mut agents = chain.register_many(CLUSTER, 64);
    chain.deps.storage.map.insert(vec![0x11, 0, 0, 0, 0], types);
    let now = chain.now();
    let reports: Vec<_> = agents
        .iter_mut()
        .map(|a| {
            a.section.gpu_type = match a.slot {
                63 => format!("{:064}", 1),
                62 => LATE.to_owned(),
                _ => format!("{:064}", 0),
            };
            a.section.jobs = (0..64).map(|n| format!("{n:042}")).collect();
            a.section.measurements = (0..16)
                .map(|n| Measurement {
                    target: format!("node-{n:059}").parse().unwrap(),
                    latency_us: 40,
                    packet_loss_percent: 0,
                    measured_at: 1,
                })
                .collect();
            assert!(a.section.encode().len() > 3_900);
            let report = a.report(now, hpc_schema::node::HealthStatus::Healthy, 64);
            (a.clone(), report)
        })
        .collect();
    let answer = chain.submit(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    assert_eq!(answer.accepted, 64);
    for agent in &agents {
        let drain = json!({"drain_node": {"node_id": agent.id, "reason": "r".repeat(64)}});
        chain.provider_sends(drain).unwrap();
    }
    copy_first_page(&mut chain, pages);
    chain
}

/// Node `slot` of page `page` is `node-PPPP-SS`.
fn id(page: u16, slot: u8) -> String {
    format!("node-{page:04}-{slot:02}")
}

/// By the tables of `docs/contract.md`: registering thousands of nodes would take minutes.
fn copy_first_page(chain: &mut Chain, pages: u16) {
    let first = chain.deps.storage.map.clone();
    let map = &mut chain.deps.storage.map;
    map.retain(|k, _| k[0] != 0x12);
    for page in 0..pages {
        for (key, value) in &first {
            if !matches!(key[0], 0x02..=0x07 | 0x13) {
                continue;
            }
            let mut key = key.clone();
            key[5..7].copy_from_slice(&page.to_be_bytes());
            let value = match key[0] {
                0x04 => id(page, key[7]).into_bytes(),
                _ => value.clone(),
            };
            map.insert(key, value);
        }
        for slot in 0..64 {
            let mut key = vec![0x12];
            key.extend(id(page, slot).as_bytes());
            key.extend([0; 5]);
            let [high, low] = page.to_be_bytes();
            map.insert(key, vec![high, low, slot]);
        }
    }
    let cluster = map.get_mut(&[&[1], CLUSTER.as_bytes()].concat()).unwrap();
    cluster[6..10].copy_from_slice(&(u32::from(pages) * 64).to_be_bytes());
}

/// The answer, and what it read.
fn ask(chain: &Chain, msg: Value) -> (Value, u64) {
    chain.deps.storage.take_gas();
    let answer = chain.query(msg).unwrap();
    (answer, chain.deps.storage.take_gas())
}

/// Asks on and on, `calls` times at most; answers with the number of entries of `list` and the most that one answer
/// read.
fn walk(chain: &Chain, mut msg: Value, list: &str, calls: u32) -> (usize, u64) {
    let (mut entries, mut worst) = (0, 0);
    for _ in 0..calls {
        let (answer, gas) = ask(chain, msg.clone());
        worst = worst.max(gas);
        entries += answer[list].as_array().unwrap().len();
        if answer["next"].is_null() {
            return (entries, worst);
        }
        for (_, body) in msg.as_object_mut().unwrap() {
            assert_ne!(body["start_after"], answer["next"], "the list goes on");
            body["start_after"] = answer["next"].clone();
        }
    }
    (entries, worst)
}

#[test]
fn one_call_looks_for_a_gpu_type_on_64_full_pages() {
    let chain = full(64);
    for (gpu_type, found) in [
        (format!("{:064}", 5), 0),
        // Without a number, sections tell.
        ("H100".to_owned(), 0),
        (LATE.to_owned(), 64),
        (format!("{:064}", 1), 64),
    ] {
        let msg = |limit: u32| json!({"nodes": {"filter": {"gpu_type": gpu_type}, "limit": limit}});
        let (answer, gas) = ask(&chain, msg(100));
        println!("{gpu_type:>64}: {gas}");
        assert!(gas <= READS, "{gas}");
        assert!(
            found > 0 || answer["next"].is_null(),
            "looking in vain takes one call"
        );
        assert_eq!(walk(&chain, msg(100), "nodes", 10).0, found, "{gpu_type}");
    }
}

#[test]
fn every_answer_stays_within_what_a_node_grants_a_query() {
    let mut chain = full(256);
    let operators: Vec<_> = (0..16)
        .map(|n| chain.deps.api.addr_make(&format!("operator {n}")))
        .collect();
    for n in 0..300 {
        let msg = json!({"create_cluster": {"cluster_id": format!("other-{n:03}"), "name": "n".repeat(64),
            "gateway_endpoint": format!("https://{}", "h".repeat(240)), "operators": operators}});
        // Without the copy of the store that a refusal would need.
        let sender = chain.provider.address(&chain);
        let info = cosmwasm_std::testing::message_info(&sender, &[]);
        hpc_registry::contract::execute(
            chain.deps.as_mut(),
            chain.env.clone(),
            info,
            serde_json::from_value(msg).unwrap(),
        )
        .unwrap();
    }
    let apart = |n: u16| (0..n).map(|page| id(page, 63)).collect::<Vec<_>>();
    let mut table = vec![];
    for (name, msg) in [
        ("config", json!({"config": {}})),
        ("params", json!({"params": {}})),
        ("cluster", json!({"cluster": {"cluster_id": CLUSTER}})),
        (
            "aggregate, 256 pages",
            json!({"aggregate": {"cluster_id": CLUSTER}}),
        ),
        ("node", json!({"node": {"node_id": id(3, 3)}})),
        (
            "nodes_by_ids, 50",
            json!({"nodes_by_ids": {"cluster_id": CLUSTER, "node_ids": apart(50)}}),
        ),
        (
            "relay, 100",
            json!({"relay": {"cluster_id": CLUSTER, "node_ids": apart(100)}}),
        ),
        (
            "raw_page",
            json!({"raw_page": {"cluster_id": CLUSTER, "page": 9}}),
        ),
    ] {
        table.push((name, ask(&chain, msg).1));
    }
    let nobody = chain.deps.api.addr_make("nobody");
    for (name, entries, list, msg) in [
        ("nodes", 200, "nodes", json!({"nodes": {"limit": 100}})),
        (
            "nodes of no state",
            0,
            "nodes",
            json!({"nodes": {"filter": {"state": "drained"}, "limit": 100}}),
        ),
        (
            "nodes of nobody",
            0,
            "nodes",
            json!({"nodes": {"filter": {"provider": nobody}, "limit": 100}}),
        ),
        (
            "nodes of a rare type",
            100,
            "nodes",
            json!({"nodes": {"filter": {"gpu_type": format!("{:064}", 1)}, "limit": 100}}),
        ),
        (
            "clusters of nobody",
            0,
            "clusters",
            json!({"clusters": {"owner": nobody, "limit": 100}}),
        ),
        ("clusters", 200, "clusters", json!({"clusters": {"limit": 100}})),
    ] {
        let (found, worst) = walk(&chain, msg, list, 2);
        assert_eq!(found, entries, "{name}");
        table.push((name, worst));
    }
    chain.advance(1_000);
    let at_risk = json!({"jobs_at_risk": {"cluster_id": CLUSTER, "limit": 100}});
    let (found, worst) = walk(&chain, at_risk, "nodes", 2);
    assert_eq!(found, 200);
    table.push(("jobs_at_risk", worst));
    for (name, gas) in &table {
        println!("{name:>24}: {gas}");
    }
    let over: Vec<_> = table.iter().filter(|(_, gas)| *gas > READS).collect();
    assert!(over.is_empty(), "{over:?}");
}
