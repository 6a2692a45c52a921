//! Random histories: the sums equal a recount, and the other invariants of storage hold.
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

use std::collections::{BTreeMap, BTreeSet};

use common::actors::key_of;
use common::*;
use hpc_schema::cluster::Aggregate;
use hpc_schema::node::{HealthStatus, HotRecord, NodeState};
use hpc_schema::registry::{AggregateView, Event, NodesAnswer, RawPageAnswer};
use proptest::prelude::*;
use serde_json::json;

#[derive(Debug, Clone)]
enum Step {
    Wait(u32),
    Report {
        nodes: u8,
        status: HealthStatus,
        jobs: bool,
        gpu: u8,
        age: u32,
        bad: bool,
    },
    Sweep,
    Drain(u8),
    Resume(u8),
    Deregister(u8),
    Register(u8),
    Rotate(u8),
    Switch(bool),
    Prune,
    Params(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let node = 0u8..6;
    prop_oneof![
        3 => prop_oneof![0u32..200, 200u32..5_000, Just(2_600_000)].prop_map(Step::Wait),
        6 => (any::<u8>(), prop::sample::select(&HealthStatus::ALL[..]), any::<bool>(), 0u8..4, 0u32..320, any::<bool>())
            .prop_map(|(nodes, status, jobs, gpu, age, bad)| Step::Report { nodes, status, jobs, gpu, age, bad }),
        2 => Just(Step::Sweep),
        1 => node.clone().prop_map(Step::Drain),
        1 => node.clone().prop_map(Step::Resume),
        1 => node.clone().prop_map(Step::Deregister),
        3 => node.clone().prop_map(Step::Register),
        1 => node.prop_map(Step::Rotate),
        1 => any::<bool>().prop_map(Step::Switch),
        1 => Just(Step::Prune),
        1 => any::<bool>().prop_map(Step::Params),
    ]
}

struct World {
    chain: Chain,
    agents: Vec<Agent>,
    /// State by events alone; nodes not on record are absent.
    states: BTreeMap<String, NodeState>,
}

impl World {
    fn follow(&mut self, outcome: Outcome) {
        let Ok(response) = outcome else { return };
        for event in events(&response) {
            match event {
                Event::Transition {
                    node_id, from, to, ..
                } => {
                    let id = node_id.to_string();
                    assert_eq!(self.states.get(&id).copied(), from.0, "events of {id} chain");
                    self.states.insert(id, to);
                }
                Event::Removed { node_id, .. } => {
                    assert_eq!(
                        self.states.remove(node_id.as_str()),
                        Some(NodeState::Deregistered)
                    );
                }
                _ => {}
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let chain = &mut self.chain;
        let outcome = match step {
            Step::Wait(seconds) => {
                chain.advance(u64::from(*seconds));
                return;
            }
            Step::Report {
                nodes,
                status,
                jobs,
                gpu,
                age,
                bad,
            } => {
                let now = chain.now();
                let mut reports = Vec::new();
                for (i, agent) in self
                    .agents
                    .iter_mut()
                    .enumerate()
                    .filter(|(i, _)| nodes & (1 << i) != 0)
                {
                    let gpu_type = format!("GPU type {gpu}");
                    if agent.section.gpu_type != gpu_type {
                        agent.section.gpu_type = gpu_type;
                    }
                    agent.attach = true;
                    let mut signed = agent.report(now - u64::from(*age), *status, u64::from(*jobs));
                    if *bad && i % 2 == 0 {
                        signed.signature[0] ^= 1;
                    }
                    reports.push((agent.clone(), signed));
                }
                if reports.is_empty() {
                    return;
                }
                let mut places = BTreeSet::new();
                reports.retain(|(a, _)| places.insert((a.page, a.slot)));
                chain.anyone_sends(batch(reports.iter().map(|(a, r)| (a, r.clone())).collect()))
            }
            Step::Sweep => chain.anyone_sends(json!({"sweep": {}})),
            Step::Drain(i) => chain.provider_sends(json!({"drain_node": {"node_id": id(*i)}})),
            Step::Resume(i) => chain.provider_sends(json!({"resume_node": {"node_id": id(*i)}})),
            Step::Deregister(i) => chain.provider_sends(json!({"deregister_node": {"node_id": id(*i)}})),
            Step::Register(i) => {
                let agent = &mut self.agents[usize::from(*i)];
                let msg = agent.registration(chain);
                let outcome = chain.anyone_sends(msg);
                if let Ok(response) = &outcome {
                    agent.placed(&data(response));
                }
                outcome
            }
            Step::Rotate(i) => {
                let agent = &mut self.agents[usize::from(*i)];
                let mut rotated = agent.clone();
                let next = key_of(&format!("{}/{}", agent.id, chain.now()));
                let msg = rotated.rotation(chain, next);
                let outcome = chain.anyone_sends(msg);
                if let Ok(response) = &outcome {
                    rotated.placed(&data(response));
                    *agent = rotated;
                }
                outcome
            }
            Step::Switch(on) => {
                let verb = if *on {
                    "activate_cluster"
                } else {
                    "deactivate_cluster"
                };
                chain.provider_sends(json!({verb: {"cluster_id": CLUSTER}}))
            }
            Step::Prune => chain.anyone_sends(json!({"prune": {}})),
            Step::Params(tight) => {
                let (timeout, offline) = if *tight { (60, 121) } else { (120, 300) };
                let admin = chain.admin.clone();
                chain.send(
                    &admin,
                    json!({"update_params": {"params": {
                    "heartbeat_timeout": timeout, "offline_threshold": offline}}}),
                )
            }
        };
        self.follow(outcome);
    }

    fn check(&self) {
        let chain = &self.chain;
        let answer = chain.aggregate(CLUSTER);
        assert_eq!(answer.recorded, self.recount());
        let nodes: NodesAnswer = chain
            .query(json!({"nodes": {"filter": {"cluster_id": CLUSTER}, "limit": 100}}))
            .unwrap();
        // Events alone tell every state.
        let recorded: BTreeMap<_, _> = nodes
            .nodes
            .iter()
            .map(|n| (n.node_id.to_string(), n.recorded_state))
            .collect();
        assert_eq!(recorded, self.states);
        // What is effective now is what a sum over the answers gives.
        let schedulable = nodes.nodes.iter().filter(|n| n.active).count();
        assert_eq!(answer.effective.unwrap().active_nodes as usize, schedulable);
        // Slot and identity: one to one.
        let places: BTreeSet<_> = nodes.nodes.iter().map(|n| (n.page, n.slot)).collect();
        assert_eq!(places.len(), nodes.nodes.len());
        let keys = |prefix: u8| chain.deps.storage.map.keys().filter(|k| k[0] == prefix).count();
        assert_eq!(
            (keys(0x04), keys(0x12), keys(0x13)),
            (places.len(), places.len(), places.len())
        );
        for node in &nodes.nodes {
            assert_eq!(chain.node(node.node_id.as_str()), *node);
        }
    }

    /// The sums from raw pages, as an outsider reads them.
    fn recount(&self) -> AggregateView {
        use base64::Engine as _;
        let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        let cluster: hpc_schema::registry::ClusterAnswer = self
            .chain
            .query(json!({"cluster": {"cluster_id": CLUSTER}}))
            .unwrap();
        let mut sums = Aggregate::default();
        for page in 0..cluster.cluster.pages {
            let raw: RawPageAnswer = self
                .chain
                .query(json!({"raw_page": {"cluster_id": CLUSTER, "page": page}}))
                .unwrap();
            let (hot, sections) = (decode(&raw.hot), decode(&raw.sections));
            for (slot, bytes) in hot[1..].chunks_exact(22).enumerate() {
                if let Some(record) = HotRecord::decode(bytes.try_into().unwrap()) {
                    let gpu_type = sections.get(1 + slot * 17 + 16).copied().unwrap_or(0);
                    sums.add(&record, gpu_type);
                }
            }
        }
        let types: Vec<_> = (0..4).map(|i| format!("GPU type {i}")).collect();
        let mut view = sums.view(cluster.cluster.active, &types);
        // Names are given in order of appearance: take them from the recorded answer, compare counts by index.
        for (ours, theirs) in view.gpus_by_type.iter_mut().zip(cluster.aggregate.gpus_by_type) {
            ours.gpu_type = theirs.gpu_type;
        }
        view
    }
}

fn id(i: u8) -> String {
    format!("node-{i:04}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_equal_a_recount_and_events_tell_every_state_after_any_history(
        steps in prop::collection::vec(any_step(), 1..40)
    ) {
        let agents = (0..6).map(|i| Agent::new(CLUSTER, &id(i))).collect();
        let mut world = World { chain: Chain::new(), agents, states: BTreeMap::new() };
        for i in 0..4 {
            world.step(&Step::Register(i));
        }
        for step in &steps {
            world.step(step);
            world.check();
        }
    }
}

/// Fault 17: totals were summed, latencies truncated, the mean and the score absent.
#[test]
fn sums_are_of_what_is_available_latencies_round_half_up_and_the_score_is_there() {
    use hpc_schema::report::Figures;
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 2);
    for (agent, cores, latency, measurements, status) in [
        (0, 10, 999, 1, HealthStatus::Healthy),
        (1, 20, 2_001, 1, HealthStatus::Degraded),
    ] {
        let agent: &mut Agent = &mut agents[agent];
        agent.sequence += 1;
        let figures = Figures {
            cores_available: cores,
            memory_gb_available: 5,
            avg_cluster_latency_us: latency,
            measurement_count: measurements,
            ..Figures::default()
        };
        let report = agent.with_figures(chain.now(), status, &figures);
        chain.submit(vec![(agent, report)]);
    }
    // 999 µs is 1 ms, not 0.
    assert_eq!(chain.node("node-0000").avg_latency_ms, 1);
    let sums = chain.aggregate(CLUSTER).recorded;
    assert_eq!((sums.available_cpu_cores, sums.available_memory_gb), (30, 10));
    assert_eq!(
        (sums.avg_cluster_latency_us, sums.avg_cluster_latency_ms),
        (1_500, 2)
    );
    assert_eq!(sums.health_score, 750_000);
}
