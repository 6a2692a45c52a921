//! What silence makes of nodes, and what a report after it.

use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::{Event, SweepAnswer};
use serde_json::json;

use crate::common::*;

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
