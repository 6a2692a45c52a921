//! Many nodes: states and sums equal a recount in plain Rust at each round, while part of them falls silent.
//!
//! 2,000 nodes on four clusters; 100,000 where HPC_TEST_RUNS is 100 or more (`scripts/test --full`). What it took
//! is printed: `HPC_TEST_RUNS=200 cargo test -p hpc-registry --test scale -- --nocapture`.
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

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::actors::key_of;
use common::recount::{by_name, recount};
use cosmwasm_std::testing::MockApi;
use cosmwasm_std::{Addr, Api, CanonicalAddr, Timestamp, from_json};
use cw_multi_test::{App, AppBuilder, AppResponse, BankKeeper, ContractWrapper, Executor, no_init};
use ed25519_zebra::{SigningKey, VerificationKey};
use hpc_registry::contract;
use hpc_schema::key::AgentKey;
use hpc_schema::node::{HealthStatus, HotRecord, NodeState};
use hpc_schema::registration::{NodeIdentity, account_of, adr036_sign_bytes, canonical_registration};
use hpc_schema::registry::{AggregateAnswer, RawPageAnswer, RegisterAnswer, SubmitAnswer, SweepAnswer};
use hpc_schema::report::batch::{Outgoing, encode};
use hpc_schema::report::{Body, Figures, Report, Section, Tag, section_digest};
use hpc_schema::time::Rfc3339;
use k256::ecdsa::signature::hazmat::PrehashSigner as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const CLUSTERS: usize = 4;
const ROUNDS: u64 = 6;
const SECONDS: u64 = 100;
const BATCH: usize = 1_024;
const GPU_TYPES: [&str; 3] = ["A100", "H100", "L40S"];

type Chain = App<BankKeeper, MockApi>;

/// A node as the test knows it, without asking the chain.
struct Node {
    /// Its number decides how it behaves.
    i: u64,
    key: SigningKey,
    place: RegisterAnswer,
    tag: Tag,
    sequence: u32,
    last: u64,
    body: Body,
}

impl Node {
    fn reports(&self, round: u64) -> bool {
        match self.i % 100 {
            0..=9 => round < 2,
            10..=14 => !(2..5).contains(&round),
            _ => true,
        }
    }

    fn body(&self, round: u64) -> Body {
        let status = match self.i % 100 {
            15 | 16 => HealthStatus::Draining,
            17 => HealthStatus::Degraded,
            18 => HealthStatus::Unhealthy,
            _ => HealthStatus::Healthy,
        };
        let figures = Figures {
            running_count: u64::from(self.i % 100 == 15),
            cores_available: (self.i * 7 + round) % 65,
            memory_gb_available: (self.i + round * 3) % 257,
            gpus_available: self.i % 5,
            storage_gb_available: self.i % 2_001,
            avg_cluster_latency_us: 40 + (self.i + round) % 900,
            measurement_count: self.i % 17,
        };
        Body::saturating(status, &figures)
    }

    fn gpu_type(&self) -> &'static str {
        GPU_TYPES[self.i as usize % 3]
    }

    /// What must be on record at `now`, when a sweep has been at it.
    fn state(&self, now: u64) -> NodeState {
        let at_rest = match self.i % 100 {
            15 => NodeState::Draining,
            16 => NodeState::Drained,
            _ => NodeState::Active,
        };
        match now - self.last {
            301.. => NodeState::Offline,
            121.. if at_rest == NodeState::Active => NodeState::Stale,
            _ => at_rest,
        }
    }

    fn record(&self, now: u64) -> HotRecord {
        HotRecord {
            state: self.state(now),
            status: Some(self.body.status),
            cores: self.body.cores_available,
            memory_gb: self.body.memory_gb_available,
            gpus: self.body.gpus_available,
            storage_gb: self.body.storage_gb_available,
            latency_us: self.body.avg_cluster_latency_us,
            measurements: self.body.measurement_count,
            ..HotRecord::pending()
        }
    }
}

struct World {
    app: Chain,
    registry: Addr,
    owner: Addr,
    provider: k256::ecdsa::SigningKey,
    /// By cluster.
    nodes: Vec<Vec<Node>>,
}

fn cluster(c: usize) -> String {
    format!("hpc-cluster-{c}")
}

impl World {
    fn new() -> Self {
        let api = MockApi::default().with_prefix("wasm");
        let mut app = AppBuilder::new().with_api(api).build(no_init);
        app.update_block(|block| block.time = Timestamp::from_seconds(common::T0));
        let provider = k256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap();
        let public = provider.verifying_key().to_encoded_point(true);
        let account = account_of(public.as_bytes().try_into().unwrap());
        let owner = api.addr_humanize(&CanonicalAddr::from(account)).unwrap();
        let wrapped = ContractWrapper::new(contract::execute, contract::instantiate, contract::query);
        let code = app.store_code(Box::new(wrapped));
        let registry = app
            .instantiate_contract(code, owner.clone(), &json!({}), &[], "registry", None)
            .unwrap();
        let mut world = Self {
            app,
            registry,
            owner,
            provider,
            nodes: Vec::new(),
        };
        for c in 0..CLUSTERS {
            world.send(&json!({"create_cluster": {"cluster_id": cluster(c)}}));
            world.send(&json!({"activate_cluster": {"cluster_id": cluster(c)}}));
            world.nodes.push(Vec::new());
        }
        world
    }

    fn send(&mut self, msg: &Value) -> AppResponse {
        self.app
            .execute_contract(self.owner.clone(), self.registry.clone(), msg, &[])
            .unwrap()
    }

    fn now(&self) -> u64 {
        self.app.block_info().time.seconds()
    }

    fn advance(&mut self, seconds: u64) {
        self.app.update_block(|block| {
            block.time = block.time.plus_seconds(seconds);
            block.height += 1;
        });
    }

    fn register(&mut self, c: usize, i: u64) {
        let chain_id = self.app.block_info().chain_id;
        let key = key_of(&format!("scale {i}"));
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&i.to_be_bytes());
        let identity = NodeIdentity {
            node_id: format!("node-{i:06}").parse().unwrap(),
            cluster_id: cluster(c).parse().unwrap(),
            provider_address: self.owner.to_string(),
            agent_pubkey: AgentKey::from_bytes(VerificationKey::from(&key).into()).unwrap(),
            hostname: None,
            hardware_fingerprint: None,
            registration_nonce: STANDARD.encode(nonce),
            registration_timestamp: Rfc3339::from_unix(self.now(), 0).unwrap(),
        };
        let canonical = canonical_registration(&chain_id, self.registry.as_str(), &identity).unwrap();
        let bytes = adr036_sign_bytes(self.owner.as_str(), canonical.as_bytes());
        let signature: k256::ecdsa::Signature = self.provider.sign_prehash(&Sha256::digest(bytes)).unwrap();
        let public = self.provider.verifying_key().to_encoded_point(true);
        let response = self.send(&json!({"register_node": {
            "node_identity": identity,
            "provider_signature": STANDARD.encode(signature.to_bytes()),
            "provider_pubkey": STANDARD.encode(public.as_bytes()),
        }}));
        let place: RegisterAnswer = from_json(response.data.unwrap()).unwrap();
        let tag = Tag::derive(
            &chain_id,
            self.registry.as_str(),
            &identity.cluster_id,
            &identity.node_id,
            place.epoch,
        );
        let mut node = Node {
            i,
            key,
            place,
            tag,
            sequence: 0,
            last: 0,
            body: Body::saturating(HealthStatus::Healthy, &Figures::default()),
        };
        node.body = node.body(0);
        self.nodes[c].push(node);
    }

    /// Everybody who speaks in this round reports; answers with the number of reports.
    fn report(&mut self, round: u64) -> usize {
        let now = self.now();
        let mut all = 0;
        for c in 0..CLUSTERS {
            let mut speaking: Vec<_> = self.nodes[c].iter_mut().filter(|n| n.reports(round)).collect();
            speaking.sort_by_key(|n| (n.place.page, n.place.slot));
            let mut messages = Vec::new();
            for chunk in speaking.chunks_mut(BATCH) {
                let signed: Vec<_> = chunk.iter_mut().map(|node| sign(node, round, now)).collect();
                let outgoing: Vec<_> = chunk
                    .iter()
                    .zip(&signed)
                    .map(|(node, (report, signature, section))| Outgoing {
                        page: node.place.page,
                        slot: node.place.slot,
                        report,
                        signature,
                        section: section.as_deref(),
                    })
                    .collect();
                messages.push((chunk.len(), STANDARD.encode(encode(&outgoing).unwrap())));
            }
            for (n, reports) in messages {
                let group = json!({"cluster_id": cluster(c), "reports": reports});
                let response = self.send(&json!({"submit_reports": {"groups": [group]}}));
                let answer: SubmitAnswer = from_json(response.data.unwrap()).unwrap();
                assert_eq!(
                    (
                        answer.accepted as usize,
                        answer.refused.len(),
                        answer.notices.len()
                    ),
                    (n, 0, 0)
                );
                all += n;
            }
        }
        all
    }

    /// Sweeps until the walk has come round; answers with the transitions.
    fn sweep(&mut self) -> u32 {
        let mut transitions = 0;
        loop {
            let response = self.send(&json!({"sweep": {"limit": 64}}));
            let answer: SweepAnswer = from_json(response.data.unwrap()).unwrap();
            transitions += answer.transitions;
            if answer.done {
                return transitions;
            }
        }
    }

    /// Every record and all sums are what plain Rust says.
    fn compare(&self) {
        let now = self.now();
        for (c, nodes) in self.nodes.iter().enumerate() {
            let expected: Vec<_> = nodes
                .iter()
                .map(|n| (n.record(now), Some(n.gpu_type().to_owned())))
                .collect();
            let ask = |msg: Value| {
                self.app
                    .wrap()
                    .query_wasm_smart::<Value>(&self.registry, &msg)
                    .unwrap()
            };
            let answer: AggregateAnswer =
                serde_json::from_value(ask(json!({"aggregate": {"cluster_id": cluster(c)}}))).unwrap();
            assert_eq!(by_name(answer.recorded.clone()), recount(true, &expected));
            // After a sweep there is nothing that is effective and not recorded.
            assert!(answer.effective.is_none_or(|e| e == answer.recorded));
            let mut on_record = vec![NodeState::Deregistered; nodes.len().div_ceil(64) * 64];
            for page in 0..nodes.len().div_ceil(64) {
                let raw = json!({"raw_page": {"cluster_id": cluster(c), "page": page}});
                let raw: RawPageAnswer = serde_json::from_value(ask(raw)).unwrap();
                let bytes = STANDARD.decode(raw.hot).unwrap();
                for (slot, record) in bytes[1..].chunks_exact(22).enumerate() {
                    if let Some(record) = HotRecord::decode(record.try_into().unwrap()) {
                        on_record[page * 64 + slot] = record.state;
                    }
                }
            }
            for node in nodes {
                let at = usize::from(node.place.page) * 64 + usize::from(node.place.slot);
                assert_eq!(on_record[at], node.state(now), "node {} of cluster {c}", node.i);
            }
        }
    }
}

fn sign(node: &mut Node, round: u64, now: u64) -> (Report, [u8; 64], Option<Vec<u8>>) {
    let section = Section {
        cores_total: 64,
        memory_gb_total: 256,
        gpus_total: 4,
        storage_gb_total: 2_000,
        agent_version: "0.1.0".to_owned(),
        gpu_type: node.gpu_type().to_owned(),
        ..Section::default()
    }
    .encode();
    node.sequence += 1;
    node.last = now;
    node.body = node.body(round);
    let report = Report {
        time: now as u32,
        sequence: node.sequence,
        body: node.body,
        section_digest: section_digest(&section),
        payload_hash: Sha256::digest(format!("{}/{round}", node.i)).into(),
    };
    let signature = node.key.sign(&report.message(&node.tag)).into();
    (report, signature, (round == 0).then_some(section))
}

/// Resident memory of this process now and at most, MiB.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    (
        field("VmRSS:").unwrap_or(0) / 1024,
        field("VmHWM:").unwrap_or(0) / 1024,
    )
}

#[test]
fn states_and_sums_of_many_nodes_equal_a_recount_while_part_of_them_falls_silent() {
    let runs = std::env::var("HPC_TEST_RUNS")
        .ok()
        .and_then(|n| n.parse::<u32>().ok());
    let total: u64 = if runs.is_some_and(|n| n >= 100) {
        100_000
    } else {
        2_000
    };
    let told = |what: &str, n: u64, began: Instant| {
        let (now, most) = memory();
        let seconds = began.elapsed().as_secs_f64();
        println!("{what:<28} {n:>7} in {seconds:>6.1} s; memory {now} MiB, at most {most} MiB");
    };
    let mut world = World::new();
    let began = Instant::now();
    for i in 0..total {
        world.register(i as usize % CLUSTERS, i);
    }
    told("registrations", total, began);
    for round in 0..ROUNDS {
        let began = Instant::now();
        let reports = world.report(round);
        told(&format!("round {round}: reports"), reports as u64, began);
        let began = Instant::now();
        let transitions = world.sweep();
        world.compare();
        told(
            &format!("round {round}: swept, compared"),
            u64::from(transitions),
            began,
        );
        world.advance(SECONDS);
    }
    // Nobody speaks any more.
    world.advance(301);
    let began = Instant::now();
    let transitions = world.sweep();
    world.compare();
    told("all silent: swept, compared", u64::from(transitions), began);
}
