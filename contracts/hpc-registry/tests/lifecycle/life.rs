//! From the first report to the last, and again.

use hpc_schema::code::Code;
use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::{Event, JobsStatus};
use serde_json::json;

use crate::common::*;

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
