//! The lifecycle on record: boundaries, drains, recovery, sweeps.
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
use hpc_schema::code::Code;
use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::{Event, JobsStatus, SweepAnswer};
use serde_json::json;

#[test]
fn a_registered_node_becomes_active_with_its_first_report_and_shows_what_it_said() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-hpc1-compute-042");
    assert_eq!(chain.node("node-hpc1-compute-042").state, NodeState::Pending);
    let report = agent.healthy(chain.now());
    let response = chain.anyone_sends(batch(vec![(&agent, report.clone())])).unwrap();
    assert_eq!(
        arrows(&response),
        ["node-hpc1-compute-042: pending active heartbeat"]
    );
    let node = chain.node("node-hpc1-compute-042");
    assert_eq!(
        (node.state, node.recorded_state, node.active),
        (NodeState::Active, NodeState::Active, true)
    );
    assert_eq!(node.last_heartbeat.unwrap().0, chain.now());
    assert_eq!(node.sequence, 1);
    assert_eq!(
        node.resources.cpu_cores,
        u32::from(report.report.body.cores_available)
    );
    assert_eq!(node.resources.gpu_type.as_deref(), Some("NVIDIA A100 80GB"));
    assert_eq!(node.totals.unwrap().cpu_cores, 64);
    assert_eq!(node.health_status.as_deref(), Some("healthy"));
    let sums = chain.aggregate(CLUSTER);
    assert_eq!((sums.recorded.total_nodes, sums.recorded.active_nodes), (1, 1));
    assert_eq!(sums.recorded.gpus_by_type[0].gpu_type, "NVIDIA A100 80GB");
    assert_eq!(Some(sums.recorded), sums.effective);
}

#[test]
fn boundaries_of_silence_are_strict_on_chain_too() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    let mut at = 0;
    for (silent, recorded) in [
        (120, NodeState::Active),
        (121, NodeState::Stale),
        (300, NodeState::Stale),
        (301, NodeState::Offline),
        (3_600, NodeState::Offline),
        (3_601, NodeState::Deregistered),
    ] {
        chain.advance(silent - at);
        at = silent;
        // Before the sweep the effective state already says so, but for DEREGISTERED.
        if recorded != NodeState::Deregistered {
            assert_eq!(
                chain.node("node-0001").state,
                recorded,
                "effective after {silent} s"
            );
        }
        chain.sweep();
        assert_eq!(chain.recorded("node-0001"), recorded, "recorded after {silent} s");
    }
}

/// Fault 7 of the reference: an hour without a block deregistered everybody in the first block after it.
#[test]
fn a_chain_that_stood_still_for_an_hour_deregisters_nobody() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 3);
    for agent in &mut agents {
        chain.beat(agent);
    }
    chain.advance(4_000);
    chain.sweep();
    chain.sweep();
    for agent in &agents {
        assert_eq!(chain.recorded(&agent.id), NodeState::Offline);
    }
    // They come back as if nothing had been.
    for agent in &mut agents {
        assert_eq!(chain.beat(agent).accepted, 1);
        assert_eq!(chain.recorded(&agent.id), NodeState::Active);
    }
}

/// Fault 14: a dead node was submitted again and again.
#[test]
fn a_transition_is_recorded_once_however_often_one_sweeps() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    chain.advance(301);
    let first = chain.anyone_sends(json!({"sweep": {}})).unwrap();
    assert_eq!(
        arrows(&first),
        [
            "node-0001: active stale silence",
            "node-0001: stale offline silence"
        ]
    );
    for _ in 0..60 {
        let before = chain.deps.storage.map.clone();
        let again = chain.anyone_sends(json!({"sweep": {}})).unwrap();
        assert_eq!(
            (events(&again).len(), data::<SweepAnswer>(&again).transitions),
            (0, 0)
        );
        assert_eq!(chain.deps.storage.map, before);
        chain.advance(1);
    }
}

/// Fault 8: the heartbeats of a draining node were refused, and it went offline.
#[test]
fn a_draining_nodes_heartbeats_are_accepted_and_it_stays_on_line() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    chain
        .provider_sends(json!({"drain_node": {"node_id": "node-0001", "reason": "disk swap"}}))
        .unwrap();
    for _ in 0..11 {
        chain.advance(30);
        let report = agent.report(chain.now(), HealthStatus::Healthy, 2);
        assert_eq!(chain.submit(vec![(&agent, report)]).accepted, 1);
        let node = chain.node("node-0001");
        assert_eq!((node.state, node.active), (NodeState::Draining, false));
    }
    let order = chain.node("node-0001").drain.unwrap();
    assert_eq!(
        (order.reason.as_deref(), order.until.0),
        (Some("disk swap"), T0 + 7 * 86_400)
    );
    let report = agent.report(chain.now(), HealthStatus::Healthy, 0);
    let response = chain.anyone_sends(batch(vec![(&agent, report)])).unwrap();
    assert_eq!(arrows(&response), ["node-0001: draining drained jobs_done"]);
    let resumed = chain
        .provider_sends(json!({"resume_node": {"node_id": "node-0001"}}))
        .unwrap();
    assert_eq!(arrows(&resumed), ["node-0001: drained active provider"]);
    assert!(chain.node("node-0001").drain.is_none());
    let again = chain.provider_sends(json!({"resume_node": {"node_id": "node-0001"}}));
    assert_eq!(code(again), Code::InvalidState);
}

#[test]
fn a_drained_node_may_be_switched_off_until_its_drain_ends() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    let until = T0 + 20_000;
    chain
        .provider_sends(json!({"drain_node": {"node_id": "node-0001", "until": until}}))
        .unwrap();
    chain.advance(400);
    chain.sweep();
    assert_eq!(chain.recorded("node-0001"), NodeState::Offline);
    chain.advance(19_599);
    chain.sweep();
    assert_eq!(chain.recorded("node-0001"), NodeState::Offline);
    chain.advance(1);
    chain.sweep();
    assert_eq!(chain.recorded("node-0001"), NodeState::Deregistered);
    for until in [0, chain.now(), chain.now() + 31 * 86_400] {
        let outcome = chain.provider_sends(json!({"drain_node": {"node_id": "node-0001", "until": until}}));
        assert_eq!(code(outcome), Code::InvalidField);
    }
}

#[test]
fn recovery_is_counted_and_its_jobs_are_normal_again() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    let report = agent.report(chain.now(), HealthStatus::Healthy, 2);
    chain.submit(vec![(&agent, report)]);
    chain.advance(500);
    let swept = chain.anyone_sends(json!({"sweep": {}})).unwrap();
    let at_risk = |e: &Event| matches!(e, Event::Jobs { status, .. } if status == "at_risk");
    assert!(events(&swept).iter().any(at_risk));
    let jobs: hpc_schema::registry::JobsAnswer = chain
        .query(json!({"jobs_at_risk": {"cluster_id": CLUSTER}}))
        .unwrap();
    assert_eq!(jobs.nodes.len(), 1);
    let report = agent.report(chain.now(), HealthStatus::Healthy, 2);
    let back = chain.anyone_sends(batch(vec![(&agent, report)])).unwrap();
    assert_eq!(arrows(&back), ["node-0001: offline active recovered"]);
    let normal = |e: &Event| matches!(e, Event::Jobs { status, .. } if status == "normal");
    assert!(events(&back).iter().any(normal));
    let node = chain.node("node-0001");
    assert_eq!((node.recovery_count, node.total_downtime_seconds), (1, 500));
}

#[test]
fn silent_neighbours_of_a_written_page_are_stepped_with_it_but_never_beyond_offline() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 66);
    for agent in &mut agents {
        chain.beat(agent);
    }
    chain.advance(200);
    let mut first = agents[0].clone();
    let report = first.healthy(chain.now());
    let response = chain.anyone_sends(batch(vec![(&first, report)])).unwrap();
    // Its own two arrows and one of each of the 63 neighbours; the two nodes of page 1 wait for a sweep.
    let arrows = arrows(&response);
    let silent = (0..64).map(|n| format!("node-{n:04}: active stale silence"));
    let expected: Vec<_> = silent
        .chain(["node-0000: stale active recovered".to_owned()])
        .collect();
    assert_eq!(arrows, expected);
    // What is the same of all 64 is said once.
    assert_eq!(response.events.len(), 3);
    assert_eq!(chain.recorded("node-0065"), NodeState::Active);
    assert_eq!(chain.node("node-0065").state, NodeState::Stale);
    chain.advance(10_000);
    chain.beat(&mut first);
    chain.advance(10_000);
    chain.beat(&mut first);
    assert_eq!(chain.recorded("node-0001"), NodeState::Offline);
    let sums = chain.aggregate(CLUSTER);
    assert_eq!(
        (sums.recorded.states.offline, sums.recorded.states.active),
        (63, 3)
    );
    assert_eq!(sums.effective.unwrap().states.offline, 65);
}

#[test]
fn a_pending_node_waits_for_its_cluster_and_is_told_so() {
    let mut chain = Chain::new();
    chain
        .provider_sends(json!({"deactivate_cluster": {"cluster_id": CLUSTER}}))
        .unwrap();
    let mut agent = chain.register("node-0001");
    let answer = chain.beat(&mut agent);
    assert_eq!(
        (answer.accepted, answer.notices),
        (1, vec![(0, Code::ClusterInactive.number())])
    );
    assert_eq!(chain.recorded("node-0001"), NodeState::Pending);
    chain
        .provider_sends(json!({"activate_cluster": {"cluster_id": CLUSTER}}))
        .unwrap();
    chain.beat(&mut agent);
    assert_eq!(chain.recorded("node-0001"), NodeState::Active);
    // Switched off: the state stays, nothing is schedulable.
    chain
        .provider_sends(json!({"deactivate_cluster": {"cluster_id": CLUSTER}}))
        .unwrap();
    let node = chain.node("node-0001");
    assert_eq!((node.state, node.active), (NodeState::Active, false));
    let sums = chain.aggregate(CLUSTER).recorded;
    assert_eq!(
        (sums.active_nodes, sums.available_cpu_cores, sums.states.active),
        (0, 0, 1)
    );
}

#[test]
fn a_node_that_registers_again_has_nothing_of_its_former_life() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    agent.section.jobs_total = 2;
    let report = agent.report(chain.now(), HealthStatus::Healthy, 2);
    assert_eq!(chain.submit(vec![(&agent, report)]).accepted, 1);
    let gone = json!({"deregister_node": {"node_id": "node-0001"}});
    chain.provider_sends(gone).unwrap();
    let failed = chain.node("node-0001");
    assert_eq!(failed.jobs.status, JobsStatus::Failed);
    assert!(failed.totals.is_some());
    let msg = agent.registration(&mut chain);
    agent.placed(&data(&chain.anyone_sends(msg).unwrap()));
    let anew = chain.node("node-0001");
    assert_eq!((anew.totals, anew.resources.gpu_type), (None, None));
    assert_eq!(anew.jobs, Default::default());
    assert_eq!(anew.agent_version, None);
    // Its first report brings the section.
    assert_eq!(outcomes(&chain.beat(&mut agent), 1), [Err(Code::SectionMissing)]);
    agent.attach = true;
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    assert!(chain.node("node-0001").totals.is_some());
}

#[test]
fn deregistered_nodes_refuse_reports_until_they_register_again_and_are_pruned_after_retention() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    chain.beat(&mut agent);
    let gone = chain
        .provider_sends(json!({"deregister_node": {"node_id": "node-0001"}}))
        .unwrap();
    assert_eq!(arrows(&gone), ["node-0001: active deregistered deregistered"]);
    assert_eq!(
        outcomes(&chain.beat(&mut agent), 1),
        [Err(Code::NodeDeregistered)]
    );
    let msg = agent.registration(&mut chain);
    let back = chain.anyone_sends(msg).unwrap();
    assert_eq!(arrows(&back), ["node-0001: deregistered pending registered"]);
    agent.placed(&data(&back));
    agent.attach = true;
    assert_eq!(chain.beat(&mut agent).accepted, 1);
    // The first deregistration's entry for prune is void now.
    chain.advance(31 * 86_400);
    chain.anyone_sends(json!({"prune": {}})).unwrap();
    assert_eq!(chain.node("node-0001").recorded_state, NodeState::Active);

    chain
        .provider_sends(json!({"deregister_node": {"node_id": "node-0001"}}))
        .unwrap();
    chain.advance(30 * 86_400);
    chain.anyone_sends(json!({"prune": {}})).unwrap();
    assert_eq!(chain.recorded("node-0001"), NodeState::Deregistered);
    chain.advance(1);
    let pruned = chain.anyone_sends(json!({"prune": {}})).unwrap();
    assert!(matches!(events(&pruned)[0], Event::Removed { .. }));
    let gone = chain.query::<serde_json::Value>(json!({"node": {"node_id": "node-0001"}}));
    assert_eq!(code(gone), Code::UnknownNode);
    assert_eq!(outcomes(&chain.beat(&mut agent), 1), [Err(Code::UnknownNode)]);
    assert_eq!(chain.aggregate(CLUSTER).recorded.states, Default::default());

    // The slot goes to the next node; the old node's reports do not get in.
    let old = agent.clone();
    let mut heir = chain.register("node-0002");
    assert_eq!((heir.page, heir.slot), (old.page, old.slot));
    let mut old = old;
    old.attach = true;
    assert_eq!(outcomes(&chain.beat(&mut old), 1), [Err(Code::SignatureInvalid)]);
    assert_eq!(chain.beat(&mut heir).accepted, 1);
    assert_eq!(chain.node("node-0002").recovery_count, 0);
}

#[test]
fn a_sweep_without_a_cluster_goes_round_all_of_them() {
    let mut chain = Chain::new();
    chain.create_cluster("second");
    chain.create_cluster("third");
    let mut agents = chain.register_many(CLUSTER, 70);
    agents.extend(chain.register_many("third", 70));
    for agent in &mut agents {
        chain.beat(agent);
    }
    chain.advance(121);
    let mut visited = 0;
    for _ in 0..20 {
        let answer: SweepAnswer = data(&chain.anyone_sends(json!({"sweep": {"limit": 1}})).unwrap());
        visited += answer.pages;
        if answer.done {
            break;
        }
    }
    assert_eq!(visited, 4);
    for cluster in [CLUSTER, "third"] {
        assert_eq!(chain.aggregate(cluster).recorded.states.stale, 70);
    }
    chain.advance(301);
    let answer: SweepAnswer = data(
        &chain
            .anyone_sends(json!({"sweep": {"cluster_id": "third", "limit": 1}}))
            .unwrap(),
    );
    assert_eq!((answer.pages, answer.done), (1, false));
    let answer: SweepAnswer = data(
        &chain
            .anyone_sends(json!({"sweep": {"cluster_id": "third", "limit": 1}}))
            .unwrap(),
    );
    assert_eq!((answer.pages, answer.done), (1, true));
    assert_eq!(chain.aggregate("third").recorded.states.offline, 70);
    assert_eq!(chain.aggregate(CLUSTER).recorded.states.stale, 70);
}
