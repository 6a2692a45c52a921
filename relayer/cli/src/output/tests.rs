//! Golden outputs: what scripts and people rely on.

use hpc_chain::rpc::{Attribute, Event, ExecResult, TxAnswer};
use hpc_schema::registry::{AggregateAnswer, AnchorsAnswer, ClusterAnswer, NodeAnswer, NodesAnswer, Params};
use serde_json::{Value, json};

use super::*;

fn node_json() -> Value {
    json!({
        "node_id": "node-hpc1-compute-042", "cluster_id": "hpc-cluster-1", "provider_address": "wasm1provider",
        "state": "active", "recorded_state": "active", "active": true, "health_status": "healthy",
        "last_heartbeat": 1_769_781_900, "age_seconds": 75, "sequence": 42, "epoch": 7,
        "resources": {"cpu_cores": 48, "memory_gb": 192, "gpus": 4, "gpu_type": "A100", "storage_gb": 1500},
        "totals": {"cpu_cores": 64, "memory_gb": 256, "gpus": 4, "storage_gb": 2000},
        "avg_latency_ms": 1, "avg_latency_us": 812,
        "latency_measurements": [{"target_node_id": "node-hpc1-compute-041", "latency_us": 812,
            "packet_loss_percent": 0, "measured_at": 1_769_781_890}],
        "agent_version": "0.1.0", "agent_pubkey": "GZ+NkdsQN6tgMsxGMVRVqNKMT0YdYLzR3Xg3qHHRTzg=",
        "hostname": "compute-042", "registered_at": 1_769_700_000, "recovery_count": 1,
        "total_downtime_seconds": 4000,
        "drain": {"ordered_by": "wasm1provider", "ordered_at": 1_769_781_000, "until": 1_770_000_000,
            "reason": "new memory: slot 3"},
        "jobs": {"running": true, "count": 1, "active_job_ids": ["job-1"], "status": "normal"},
        "page": 0, "slot": 3
    })
}

fn node() -> NodeAt {
    let block = json!({"height": 4711, "time": 1_769_781_975});
    let answer: NodeAnswer = serde_json::from_value(json!({"node": node_json(), "block": block})).unwrap();
    answer.into()
}

fn render<T: Serialize + Text>(format: Format, answer: &T) -> String {
    Printer { format }.render(answer).unwrap()
}

#[test]
fn a_node_begins_with_the_lines_of_the_specifications_step_6() {
    let text = render(Format::Text, &node());
    assert!(
        text.starts_with(
            "node_id: node-hpc1-compute-042\ncluster_id: hpc-cluster-1\nstate: active\nlast_heartbeat: 2026-01-30T14:05:00Z\n"
        ),
        "{text}"
    );
}

#[test]
fn a_node_in_text() {
    let expected = "\
node_id: node-hpc1-compute-042
cluster_id: hpc-cluster-1
state: active
last_heartbeat: 2026-01-30T14:05:00Z
age: 1m15s
recorded_state: active
schedulable: true
health: healthy
resources:
  cpu_cores: 48
  memory_gb: 192
  gpus: 4
  gpu_type: A100
  storage_gb: 1500
totals:
  cpu_cores: 64
  memory_gb: 256
  gpus: 4
  storage_gb: 2000
avg_latency: 0.812 ms
latency_measurements:
  - node-hpc1-compute-041 0.812 ms loss 0% at 2026-01-30T14:04:50Z
jobs:
  running: true
  count: 1
  status: normal
  active_job_ids:
    - job-1
drain:
  ordered_by: wasm1provider
  ordered_at: 2026-01-30T13:50:00Z
  until: 2026-02-02T02:40:00Z
  reason: \"new memory: slot 3\"
provider_address: wasm1provider
agent_pubkey: GZ+NkdsQN6tgMsxGMVRVqNKMT0YdYLzR3Xg3qHHRTzg=
agent_version: 0.1.0
hostname: compute-042
registered_at: 2026-01-29T15:20:00Z
epoch: 7
sequence: 42
recovery_count: 1
total_downtime: 1h6m
page: 0
slot: 3
block:
  height: 4711
  time: 2026-01-30T14:06:15Z
";
    let text = render(Format::Text, &node());
    assert_eq!(text, expected);
    serde_yaml_ng::from_str::<serde_yaml_ng::Value>(&text).unwrap();
}

#[test]
fn a_node_in_json_has_its_members_at_the_top() {
    let value: Value = serde_json::from_str(&render(Format::Json, &node())).unwrap();
    let mut expected = node_json();
    expected["block"] = json!({"height": 4711, "time": 1_769_781_975});
    assert_eq!(value, expected);
    let yaml: Value = serde_yaml_ng::from_str(&render(Format::Yaml, &node())).unwrap();
    assert_eq!(yaml, expected);
}

#[test]
fn a_node_that_never_reported_says_so() {
    let mut fresh = node_json();
    for key in [
        "last_heartbeat",
        "age_seconds",
        "health_status",
        "totals",
        "drain",
        "agent_version",
    ] {
        fresh.as_object_mut().unwrap().remove(key);
    }
    fresh["state"] = json!("pending");
    let answer = json!({"node": fresh, "block": {"height": 1, "time": 1}});
    let answer: NodeAnswer = serde_json::from_value(answer).unwrap();
    let text = render(Format::Text, &NodeAt::from(answer));
    assert!(
        text.contains("state: pending\nlast_heartbeat: never\nrecorded_state"),
        "{text}"
    );
    assert!(text.contains("health: unknown\n"), "{text}");
}

#[test]
fn nodes_are_an_aligned_table_and_the_cursor_is_a_remark() {
    let mut second = node_json();
    second["node_id"] = json!("node-2");
    second["resources"] = json!({"cpu_cores": 4, "memory_gb": 8, "gpus": 0, "storage_gb": 20});
    let list = json!({"nodes": [node_json(), second], "next": "abc", "block": {"height": 1, "time": 1}});
    let list: NodesAnswer = serde_json::from_value(list).unwrap();
    let expected = "\
NODE                   CLUSTER        STATE   HEALTH     AGE  CORES  MEMORY GB  GPUS  GPU TYPE  STORAGE GB   LATENCY
node-hpc1-compute-042  hpc-cluster-1  active  healthy  1m15s     48        192     4  A100            1500  0.812 ms
node-2                 hpc-cluster-1  active  healthy  1m15s      4          8     0  -                 20  0.812 ms
";
    assert_eq!(render(Format::Text, &list), expected);
    assert_eq!(list.remark().unwrap(), "more: --start-after abc (or --all)");
    let empty = NodesAnswer {
        nodes: Vec::new(),
        next: None,
        block: list.block,
    };
    assert_eq!(empty.remark().unwrap(), "no nodes");
}

fn sums() -> Value {
    json!({
        "total_nodes": 3, "active_nodes": 2,
        "states": {"pending": 1, "active": 2, "stale": 0, "draining": 0, "drained": 0, "offline": 0, "deregistered": 0},
        "available_cpu_cores": 96, "available_memory_gb": 384, "available_gpus": 8,
        "gpus_by_type": [{"gpu_type": "A100", "available": 8}], "available_storage_gb": 3000,
        "avg_cluster_latency_ms": 1, "avg_cluster_latency_us": 1234, "health_score": 750_000
    })
}

#[test]
fn a_cluster_shows_its_sums() {
    let answer = json!({
        "cluster": {"cluster_id": "hpc-cluster-1", "owner": "wasm1owner", "operators": ["wasm1op"], "name": "Cluster 1",
            "gateway_endpoint": "https://g:8443", "job_ids": "none", "active": true, "pages": 1, "created_at": 1_769_700_000},
        "aggregate": sums(), "block": {"height": 9, "time": 1_769_781_975}
    });
    let answer: ClusterAnswer = serde_json::from_value(answer).unwrap();
    let expected = "\
cluster_id: hpc-cluster-1
name: Cluster 1
active: true
owner: wasm1owner
operators:
  - wasm1op
gateway_endpoint: https://g:8443
job_ids: none
pages: 1
created_at: 2026-01-29T15:20:00Z
aggregate:
  total_nodes: 3
  active_nodes: 2
  states:
    pending: 1
    active: 2
    stale: 0
    draining: 0
    drained: 0
    offline: 0
    deregistered: 0
  available_cpu_cores: 96
  available_memory_gb: 384
  available_gpus: 8
  gpus_by_type:
    - 8 x A100
  available_storage_gb: 3000
  avg_cluster_latency: 1.234 ms
  health_score: 750000 of 1000000
block:
  height: 9
  time: 2026-01-30T14:06:15Z
";
    let at = ClusterAt::from(answer);
    assert_eq!(render(Format::Text, &at), expected);
    let value: Value = serde_json::from_str(&render(Format::Json, &at)).unwrap();
    assert_eq!(value["cluster_id"], "hpc-cluster-1");
    assert_eq!(value["aggregate"]["health_score"], 750_000);
}

#[test]
fn an_aggregate_shows_effective_and_recorded_sums() {
    let answer = json!({"cluster_id": "hpc-cluster-1", "recorded": sums(), "recorded_at": 1_769_781_900,
        "effective": sums(), "block": {"height": 9, "time": 1_769_781_975}});
    let answer: AggregateAnswer = serde_json::from_value(answer).unwrap();
    let text = render(Format::Text, &answer);
    assert!(
        text.starts_with("cluster_id: hpc-cluster-1\neffective:\n  total_nodes: 3\n"),
        "{text}"
    );
    assert!(
        text.contains("\nrecorded_at: 2026-01-30T14:05:00Z\nrecorded:\n"),
        "{text}"
    );
    serde_yaml_ng::from_str::<serde_yaml_ng::Value>(&text).unwrap();
}

#[test]
fn params_in_text() {
    let expected = "\
heartbeat_interval: 30s
heartbeat_timeout: 120s
offline_threshold: 300s
deregistration_delay: 3600s
retention: 2592000s
batch_limit: 1024
cluster_creation: open
cluster_deposit: none
";
    assert_eq!(render(Format::Text, &Params::default()), expected);
}

#[test]
fn anchors_are_a_table() {
    let answer = json!({"anchors": [{"kind": "audit-head", "digest": "ab", "sender": "wasm1s", "height": 12,
        "time": 1_769_781_900}], "block": {"height": 13, "time": 1_769_781_930}});
    let answer: AnchorsAnswer = serde_json::from_value(answer).unwrap();
    let expected = "\
HEIGHT  TIME                  KIND        DIGEST  SENDER
    12  2026-01-30T14:05:00Z  audit-head  ab      wasm1s
";
    assert_eq!(render(Format::Text, &answer), expected);
}

#[test]
fn a_transaction_shows_what_the_contract_did() {
    let attribute = |key: &str, value: &str| Attribute {
        key: key.into(),
        value: value.into(),
    };
    let bytes = vec![1, 2, 3];
    let tx = TxAnswer {
        hash: hpc_chain::hash::TxHash::of(&bytes),
        height: 12,
        index: 0,
        result: ExecResult {
            code: 0,
            codespace: String::new(),
            data: Vec::new(),
            log: String::new(),
            gas_wanted: 200,
            gas_used: 150,
            events: vec![
                Event {
                    ty: "message".into(),
                    attributes: vec![attribute("action", "x")],
                },
                Event {
                    ty: "wasm-hpc_cluster_activated".into(),
                    attributes: vec![attribute("cluster_id", "hpc-1"), attribute("msg_index", "0")],
                },
            ],
        },
        bytes,
    };
    let mut out = TxOut::new(&tx);
    out.fee = Some(vec![CoinOut {
        denom: "stake".into(),
        amount: "5".into(),
    }]);
    let expected = "\
txhash: 039058C6F2C0CB492C533B0A4D14EF77CC0F78ABCCCED5287D84A1A2011CFB81
height: 12
code: 0
gas_wanted: 200
gas_used: 150
fee: 5stake
wasm-hpc_cluster_activated:
  cluster_id: hpc-1
";
    assert_eq!(render(Format::Text, &out), expected);
    assert_eq!(out.attribute("message", "action"), Some("x"));
    let value: Value = serde_json::from_str(&render(Format::Json, &out)).unwrap();
    assert_eq!(value["fee"], json!([{"denom": "stake", "amount": "5"}]));
    let attributes = &value["events"][1]["attributes"];
    assert_eq!(attributes[0], json!({"key": "cluster_id", "value": "hpc-1"}));
}
