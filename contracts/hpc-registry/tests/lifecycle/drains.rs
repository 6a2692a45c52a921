//! Drains.

use hpc_schema::code::Code;
use hpc_schema::node::{HealthStatus, NodeState};
use serde_json::json;

use crate::common::*;

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
