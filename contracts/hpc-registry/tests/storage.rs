//! Raw keys and values of a scenario, and its events: a change without a migration fails here.
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

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::actors::key_of;
use common::*;
use cosmwasm_std::coin;
use hpc_registry::contract;
use hpc_schema::code::Code;
use hpc_schema::node::HealthStatus;
use hpc_schema::registry::{ConfigAnswer, MigrateMsg, SweepAnswer};
use hpc_schema::report::Measurement;
use serde_json::json;

fn shown(bytes: &[u8]) -> String {
    let printable = |b: &u8| (b' '..=b'~').contains(b);
    // A key may begin with a binary prefix; text is easier to review than hex.
    if bytes.len() > 1 && bytes.iter().all(printable) {
        return format!("{:?}", String::from_utf8_lossy(bytes));
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn told(out: &mut String, what: &str, outcome: Outcome) {
    out.push_str(&format!("\n## {what}\n"));
    let response = outcome.unwrap();
    for event in &response.events {
        let attributes: Vec<_> = event
            .attributes
            .iter()
            .map(|a| format!("{}={}", a.key, a.value))
            .collect();
        out.push_str(&format!("{}: {}\n", event.ty, attributes.join(" ")));
    }
    if let Some(data) = &response.data {
        out.push_str(&format!("data: {}\n", String::from_utf8_lossy(data)));
    }
}

/// Something of everything that storage can hold.
fn scenario() -> (Chain, String) {
    let mut chain = Chain::bare();
    let mut out = String::new();
    let admin = chain.admin.clone();
    let params = json!({"update_params": {"params": {"cluster_deposit": {"denom": "stake", "amount": "0"}}}});
    told(&mut out, "parameters", chain.send(&admin, params));
    let next = chain.deps.api.addr_make("next");
    told(
        &mut out,
        "admin proposed",
        chain.send(&admin, json!({"propose_admin": {"admin": next}})),
    );
    let create = json!({"create_cluster": {
        "cluster_id": CLUSTER, "name": "First cluster", "region": "eu-central",
        "gateway_endpoint": "https://gateway.example.org:8443", "job_ids": "hashed"}});
    told(&mut out, "cluster created", chain.provider_sends(create));
    told(
        &mut out,
        "activated",
        chain.provider_sends(json!({"activate_cluster": {"cluster_id": CLUSTER}})),
    );
    let key = STANDARD.encode([9u8; 32]);
    let task_key = json!({"set_task_key": {"cluster_id": CLUSTER, "task_public_key": key}});
    told(&mut out, "task key set", chain.provider_sends(task_key));
    let operators = json!({"update_cluster": {"cluster_id": CLUSTER, "operators": [chain.deps.api.addr_make("operator")]}});
    told(&mut out, "operator named", chain.provider_sends(operators));
    let heir =
        json!({"propose_cluster_owner": {"cluster_id": CLUSTER, "owner": chain.deps.api.addr_make("heir")}});
    told(&mut out, "owner proposed", chain.provider_sends(heir));
    let mut agents = Vec::new();
    for i in 0..4 {
        let mut agent = Agent::new(CLUSTER, &format!("node-{i:04}"));
        agent.fingerprint = (i == 0).then(|| "0a".repeat(32));
        let msg = agent.registration(&mut chain);
        let outcome = chain.anyone_sends(msg);
        agent.placed(&data(outcome.as_ref().unwrap()));
        told(&mut out, &format!("node {i} registered"), outcome);
        agents.push(agent);
    }
    agents[1].section.jobs = vec!["0123456789abcdef".to_owned()];
    agents[1].section.jobs_total = 1;
    agents[1].section.measurements = vec![Measurement {
        target: "node-0000".parse().unwrap(),
        latency_us: 45,
        packet_loss_percent: 1,
        measured_at: u32::try_from(T0).unwrap(),
    }];
    let statuses = [
        HealthStatus::Healthy,
        HealthStatus::Degraded,
        HealthStatus::Draining,
    ];
    let reports: Vec<_> = agents
        .iter_mut()
        .zip(statuses)
        .zip([0, 1, 2])
        .map(|((a, status), jobs)| {
            let report = a.report(T0, status, jobs);
            (a.clone(), report)
        })
        .collect();
    let msg = batch(reports.iter().map(|(a, r)| (a, r.clone())).collect());
    told(&mut out, "three reports", chain.anyone_sends(msg));
    chain.advance(60);
    let drain = json!({"drain_node": {"node_id": "node-0000", "reason": "disk swap"}});
    told(&mut out, "node 0 drained", chain.provider_sends(drain));
    let msg = agents[1].rotation(&mut chain, key_of("second key"));
    let outcome = chain.anyone_sends(msg);
    agents[1].placed(&data(outcome.as_ref().unwrap()));
    told(&mut out, "node 1 rotated", outcome);
    let gone = json!({"deregister_node": {"node_id": "node-0003"}});
    told(&mut out, "node 3 deregistered", chain.provider_sends(gone));
    chain.advance(400);
    told(
        &mut out,
        "swept after 460 s",
        chain.anyone_sends(json!({"sweep": {}})),
    );
    let report = agents[1].report(chain.now(), HealthStatus::Healthy, 1);
    told(
        &mut out,
        "node 1 is back",
        chain.anyone_sends(batch(vec![(&agents[1], report)])),
    );
    let anchor = json!({"anchor": {"cluster_id": CLUSTER, "kind": "audit-head", "digest": "ab".repeat(32)}});
    told(&mut out, "anchored", chain.provider_sends(anchor));
    told(
        &mut out,
        "another cluster",
        chain.provider_sends(json!({"create_cluster": {"cluster_id": "second"}})),
    );
    told(
        &mut out,
        "a part swept",
        chain.anyone_sends(json!({"sweep": {"limit": 1}})),
    );
    // A free slot, and a walk over nonces that has not come round.
    let admin = chain.admin.clone();
    let retention = json!({"update_params": {"params": {"retention": 86_400}}});
    told(&mut out, "retention of a day", chain.send(&admin, retention));
    chain.advance(86_401);
    told(
        &mut out,
        "one node pruned",
        chain.anyone_sends(json!({"prune": {"limit": 1}})),
    );
    let deposit =
        json!({"update_params": {"params": {"cluster_deposit": {"denom": "stake", "amount": "500"}}}});
    told(&mut out, "a deposit asked", chain.send(&admin, deposit));
    let create = json!({"create_cluster": {"cluster_id": "third"}});
    let sender = chain.provider.address(&chain);
    let paid = chain.send_with(
        &sender,
        &[coin(500, "stake")],
        serde_json::from_value(create).unwrap(),
    );
    told(&mut out, "a cluster paid for", paid);
    (chain, out)
}

#[test]
fn raw_keys_and_values_are_as_committed() {
    let (chain, _) = scenario();
    let mut text = String::from("# key = value; hex, or text in quotes\n");
    for (key, value) in &chain.deps.storage.map {
        text.push_str(&format!("{} = {}\n", shown(key), shown(value)));
    }
    golden("storage.txt", &text);
}

#[test]
fn events_and_response_data_are_as_committed() {
    golden("events.txt", &scenario().1);
}

#[test]
fn a_pruned_node_leaves_nothing_but_a_free_slot() {
    let (mut chain, _) = scenario();
    chain.advance(30 * 86_400 + 1);
    chain.anyone_sends(json!({"prune": {}})).unwrap();
    let place = [0, 0, 0, 0, 0, 0, 3];
    let left: Vec<_> = chain
        .deps
        .storage
        .map
        .keys()
        .filter(|k| k[0] != 0x02 && k.ends_with(&place))
        .map(|k| k[0])
        .collect();
    assert_eq!(left, [0x08]);
    assert!(
        !chain.deps.storage.map.keys().any(|k| k[0] == 0x0a),
        "expired nonces are gone too"
    );
}

#[test]
fn the_cursors_of_a_cluster_with_two_pages_are_as_committed() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 65);
    chain.beat(&mut agents[64]);
    let mut text = String::from("# what stands under 0f after each message\n");
    let all = json!({"sweep": {"limit": 1}});
    let one = json!({"sweep": {"cluster_id": CLUSTER, "limit": 1}});
    for msg in [&one, &all, &one, &all] {
        let answer: SweepAnswer = data(&chain.anyone_sends(msg.clone()).unwrap());
        text.push_str(&format!("\n## {msg} done: {}\n", answer.done));
        for (key, value) in chain.deps.storage.map.range(vec![0x0f]..vec![0x10]) {
            text.push_str(&format!("{} = {}\n", shown(key), shown(value)));
        }
    }
    golden("cursors.txt", &text);
}

fn set_layout(chain: &mut Chain, layout: u32) {
    let config = String::from_utf8(chain.deps.storage.map[&b"config"[..]].clone()).unwrap();
    let changed = config.replace("\"layout\":1", &format!("\"layout\":{layout}"));
    chain
        .deps
        .storage
        .map
        .insert(b"config".to_vec(), changed.into_bytes());
}

#[test]
fn a_migration_from_the_layout_before_adds_the_heads_of_pages_and_changes_nothing_else() {
    let (mut chain, _) = scenario();
    let after = chain.deps.storage.map.clone();
    // Layout 0: the same without heads.
    let heads = chain
        .deps
        .storage
        .map
        .extract_if(.., |k, _| k[0] == 0x02 && k[7] == 0)
        .count();
    assert_eq!(heads, 1);
    set_layout(&mut chain, 0);
    assert_ne!(chain.deps.storage.map, after);
    contract::migrate(chain.deps.as_mut(), chain.env.clone(), MigrateMsg {}).unwrap();
    assert_eq!(chain.deps.storage.map, after);
    // A second time there is nothing to do.
    contract::migrate(chain.deps.as_mut(), chain.env.clone(), MigrateMsg {}).unwrap();
    assert_eq!(chain.deps.storage.map, after);
    let config: ConfigAnswer = chain.query(json!({"config": {}})).unwrap();
    assert_eq!(
        (config.layout, config.version.as_str()),
        (1, env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_migration_refuses_later_layouts_later_versions_and_other_contracts() {
    let (mut chain, _) = scenario();
    let before = chain.deps.storage.clone();
    set_layout(&mut chain, 2);
    let refused = contract::migrate(chain.deps.as_mut(), chain.env.clone(), MigrateMsg {});
    assert_eq!(code(refused), Code::UnsupportedVersion);
    for (contract, version) in [("another", "0.1.0"), ("crates.io:hpc-registry", "99.0.0")] {
        chain.deps.storage = before.clone();
        cw2::set_contract_version(&mut chain.deps.storage, contract, version).unwrap();
        let refused = contract::migrate(chain.deps.as_mut(), chain.env.clone(), MigrateMsg {});
        assert_eq!(code(refused), Code::UnsupportedVersion);
    }
}
