//! Questions: filters, paging, relayers' needs, anchors.
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

use std::collections::BTreeSet;

use common::*;
use hpc_schema::code::Code;
use hpc_schema::node::{HealthStatus, NodeState};
use hpc_schema::registry::*;
use hpc_schema::report::Figures;
use serde_json::{Value, json};

fn nodes(chain: &Chain, filter: Value, start_after: Option<&str>, limit: Option<u32>) -> NodesAnswer {
    chain
        .query(json!({"nodes": {"filter": filter, "start_after": start_after, "limit": limit}}))
        .unwrap()
}

fn all(chain: &Chain, filter: &Value, limit: u32) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    for _ in 0..1_000 {
        let answer = nodes(chain, filter.clone(), cursor.as_deref(), Some(limit));
        assert!(answer.nodes.len() <= limit as usize);
        ids.extend(
            answer
                .nodes
                .iter()
                .map(|n| format!("{}/{}", n.cluster_id, n.node_id)),
        );
        cursor = answer.next;
        if cursor.is_none() {
            return ids;
        }
    }
    panic!("the list does not end");
}

#[test]
fn lists_page_through_all_clusters_without_gap_or_repetition() {
    let mut chain = Chain::bare();
    let mut expected = Vec::new();
    for (cluster, n) in [("cluster-a", 70), ("cluster-b", 0), ("cluster-c", 5)] {
        chain.create_cluster(cluster);
        chain.register_many(cluster, n);
        expected.extend((0..n).map(|i| format!("{cluster}/node-{i:04}")));
    }
    for limit in [1, 7, 64, 100] {
        assert_eq!(all(&chain, &json!({}), limit), expected, "limit {limit}");
        assert_eq!(
            all(&chain, &json!({"cluster_id": "cluster-a"}), limit),
            expected[..70]
        );
    }
    assert_eq!(nodes(&chain, json!({}), None, None).nodes.len(), 30);
    assert_eq!(nodes(&chain, json!({}), None, Some(1_000)).nodes.len(), 75);
    let clusters: ClustersAnswer = chain.query(json!({"clusters": {"limit": 2}})).unwrap();
    assert_eq!(clusters.clusters.len(), 2);
    let rest: ClustersAnswer = chain
        .query(json!({"clusters": {"limit": 2, "start_after": clusters.next}}))
        .unwrap();
    assert_eq!(
        (rest.clusters[0].cluster_id.as_str(), rest.next),
        ("cluster-c", None)
    );
    let bad = chain.query::<Value>(json!({"nodes": {"start_after": "nonsense"}}));
    assert_eq!(code(bad), Code::Malformed);
}

#[test]
fn a_filtered_list_looks_at_64_pages_a_call_and_goes_on() {
    let mut chain = Chain::bare();
    let one = chain.provider.clone();
    // 70 clusters of another owner come first.
    chain.provider = Provider::new(2);
    for i in 0..70 {
        chain.create_cluster(&format!("other-{i:03}"));
    }
    chain.provider = one;
    chain.create_cluster(CLUSTER);
    chain.register("node-0001");
    let owner = chain.provider.address(&chain);
    let first = nodes(&chain, json!({"provider": owner}), None, None);
    assert!(first.nodes.is_empty() && first.next.is_some());
    assert_eq!(
        all(&chain, &json!({"provider": owner}), 30),
        [format!("{CLUSTER}/node-0001")]
    );
}

#[test]
fn a_scheduler_finds_what_it_asks_for() {
    let mut chain = Chain::new();
    let mut agents = chain.register_many(CLUSTER, 5);
    for (agent, (cores, memory, gpus, status, gpu_type)) in agents.iter_mut().zip([
        (8, 32, 0, HealthStatus::Healthy, ""),
        (64, 256, 4, HealthStatus::Healthy, "A100"),
        (64, 256, 4, HealthStatus::Unhealthy, "A100"),
        (32, 64, 2, HealthStatus::Degraded, "H100"),
    ]) {
        agent.sequence += 1;
        agent.section.gpu_type = gpu_type.to_owned();
        let figures = Figures {
            cores_available: cores,
            memory_gb_available: memory,
            gpus_available: gpus,
            ..Figures::default()
        };
        let report = agent.with_figures(T0, status, &figures);
        assert_eq!(chain.submit(vec![(agent, report)]).accepted, 1);
    }
    for (filter, expected) in [
        (json!({"schedulable": true}), vec![0, 1, 3]),
        (json!({"schedulable": false}), vec![2, 4]),
        (json!({"schedulable": true, "min_cores": 32}), vec![1, 3]),
        (json!({"schedulable": true, "min_memory_gb": 65}), vec![1]),
        (json!({"min_gpus": 3}), vec![1, 2]),
        (json!({"schedulable": true, "gpu_type": "H100"}), vec![3]),
        (json!({"state": "pending"}), vec![4]),
        (json!({"provider": "wasm1nobody"}), vec![]),
    ] {
        let expected: Vec<_> = expected
            .iter()
            .map(|i| format!("{CLUSTER}/node-{i:04}"))
            .collect();
        assert_eq!(all(&chain, &filter, 30), expected, "{filter}");
    }
    // Effective, not recorded: all have gone stale and nobody has swept.
    chain.advance(121);
    assert_eq!(
        all(&chain, &json!({"schedulable": true}), 30),
        Vec::<String>::new()
    );
    assert_eq!(all(&chain, &json!({"state": "stale"}), 30).len(), 4);
    let types: BTreeSet<_> = chain
        .aggregate(CLUSTER)
        .recorded
        .gpus_by_type
        .into_iter()
        .map(|g| (g.gpu_type, g.available))
        .collect();
    assert_eq!(
        types,
        BTreeSet::from([("A100".to_owned(), 4), ("H100".to_owned(), 2)])
    );
}

#[test]
fn relayers_learn_places_sequences_epochs_and_digests() {
    let mut chain = Chain::new();
    let mut agent = chain.register("node-0001");
    let ask = json!({"relay": {"cluster_id": CLUSTER, "node_ids": ["node-0001", "node-9999"]}});
    let before: RelayAnswer = chain.query(ask.clone()).unwrap();
    assert_eq!(before.nodes.len(), 1);
    assert_eq!(
        (before.nodes[0].sequence, before.nodes[0].section_digest.as_str()),
        (0, "0".repeat(32).as_str())
    );
    chain.beat(&mut agent);
    let after: RelayAnswer = chain.query(ask).unwrap();
    let node = &after.nodes[0];
    let digest = hpc_schema::report::section_digest(&agent.section.encode());
    let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!((node.sequence, node.epoch, node.page, node.slot), (1, 1, 0, 0));
    assert_eq!(
        (node.section_digest.clone(), node.agent_pubkey),
        (hex, agent.public_key())
    );
    assert_eq!((node.state, node.last_heartbeat.0), (NodeState::Active, T0));
    let many: Vec<_> = (0..101).map(|i| format!("node-{i:04}")).collect();
    let refused = chain.query::<Value>(json!({"relay": {"cluster_id": CLUSTER, "node_ids": many}}));
    assert_eq!(code(refused), Code::InvalidField);
}

#[test]
fn nodes_by_ids_come_once_each_in_order_of_their_place() {
    let mut chain = Chain::new();
    chain.register_many(CLUSTER, 66);
    let ask = ["node-0065", "node-0000", "node-0065", "no-such-node"];
    let answer: NodesAnswer = chain
        .query(json!({"nodes_by_ids": {"cluster_id": CLUSTER, "node_ids": ask}}))
        .unwrap();
    let ids: Vec<_> = answer.nodes.iter().map(|n| n.node_id.as_str()).collect();
    assert_eq!(ids, ["node-0000", "node-0065"]);
}

#[test]
fn anchors_prove_inclusion_and_time_and_keep_their_first() {
    let mut chain = Chain::new();
    let digest = |n: u8| format!("{n:02x}").repeat(32);
    let anchor =
        |n: u8, kind: &str| json!({"anchor": {"cluster_id": CLUSTER, "kind": kind, "digest": digest(n)}});
    for n in 0..5 {
        chain
            .provider_sends(anchor(n, if n % 2 == 0 { "audit-head" } else { "cleanup" }))
            .unwrap();
        chain.advance(10);
    }
    assert!(
        chain
            .provider_sends(anchor(0, "audit-head"))
            .unwrap()
            .events
            .is_empty()
    );
    let found: AnchorAnswer = chain
        .query(json!({"anchor": {"cluster_id": CLUSTER, "kind": "audit-head", "digest": digest(0)}}))
        .unwrap();
    assert_eq!(found.anchor.unwrap().time.0, T0);
    let absent: AnchorAnswer = chain
        .query(json!({"anchor": {"cluster_id": CLUSTER, "kind": "cleanup", "digest": digest(0)}}))
        .unwrap();
    assert_eq!(absent.anchor, None);
    let first: AnchorsAnswer = chain
        .query(json!({"anchors": {"cluster_id": CLUSTER, "kind": "audit-head", "limit": 2}}))
        .unwrap();
    let rest: AnchorsAnswer = chain
        .query(json!({"anchors": {"cluster_id": CLUSTER, "kind": "audit-head", "start_after": first.next}}))
        .unwrap();
    let digests: Vec<_> = first
        .anchors
        .iter()
        .chain(&rest.anchors)
        .map(|a| a.digest.clone())
        .collect();
    assert_eq!(
        (digests, rest.next),
        (vec![digest(0), digest(2), digest(4)], None)
    );
    for (kind, bad) in [
        ("Audit", digest(0)),
        ("", digest(0)),
        ("audit", "AB".repeat(32)),
        ("audit", "ab".into()),
    ] {
        let msg = json!({"anchor": {"cluster_id": CLUSTER, "kind": kind, "digest": bad}});
        assert_eq!(code(chain.provider_sends(msg)), Code::InvalidField);
    }
}

#[test]
fn parameters_keep_their_ranges_and_order() {
    let mut chain = Chain::bare();
    let admin = chain.admin.clone();
    for bad in [
        json!({"heartbeat_interval": 9}),
        json!({"heartbeat_timeout": 300}),
        json!({"batch_limit": 1}),
    ] {
        let refused = chain.send(&admin, json!({"update_params": {"params": bad}}));
        assert_eq!(code(refused), Code::InvalidParams);
    }
    chain
        .send(
            &admin,
            json!({"update_params": {"params": {"heartbeat_timeout": 200}}}),
        )
        .unwrap();
    let params: Params = chain.query(json!({"params": {}})).unwrap();
    assert_eq!(
        params,
        Params {
            heartbeat_timeout: 200,
            ..Params::default()
        }
    );
}

#[test]
fn text_fields_of_clusters_are_bounded() {
    let mut chain = Chain::new();
    let operator = chain.deps.api.addr_make("operator");
    for bad in [
        json!({"name": ""}),
        json!({"name": "x".repeat(65)}),
        json!({"name": "a<b"}),
        json!({"region": "ä"}),
        json!({"gateway_endpoint": "http://example.org"}),
        json!({"gateway_endpoint": "https://"}),
        json!({"operators": ["nobody"]}),
        json!({"operators": [operator, operator]}),
    ] {
        let mut msg = json!({"update_cluster": {"cluster_id": CLUSTER}});
        for (field, value) in bad.as_object().unwrap() {
            msg["update_cluster"][field] = value.clone();
        }
        assert_eq!(code(chain.provider_sends(msg)), Code::InvalidField, "{bad}");
    }
    for unknown in ["cluster", "aggregate"] {
        let refused = chain.query::<Value>(json!({unknown: {"cluster_id": "no-such-cluster"}}));
        assert_eq!(code(refused), Code::UnknownCluster);
    }
    let refused = chain.query::<Value>(json!({"raw_page": {"cluster_id": CLUSTER, "page": 0}}));
    assert_eq!(code(refused), Code::InvalidField);
}
