//! A chain of one endpoint that answers what a test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_chain::query::Chain;
use hpc_chain::rpc::{ClientOptions, Endpoints};
use hpc_schema::registry::StateCounts;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What the chain says to a question.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A contract's answer.
    Json(Value),
    /// A simulation's.
    Gas(u64),
    /// What the contract gave to the transaction of these bytes; asked for as `{"tx": {}}`.
    Took(&'static [u8], Value),
    /// The text of a failure.
    Fails(&'static str),
    /// The node has no such service.
    NoService,
    /// The endpoint itself fails.
    Breaks,
}

type Answers = dyn Fn(&Value) -> Answer + Send + Sync;

struct Fake {
    height: Arc<AtomicU64>,
    answers: Box<Answers>,
}

/// What the contract says of a cluster that it does not have.
pub(crate) const UNKNOWN: Answer = Answer::Fails(
    "unknown_cluster: cluster_id is not on record: query wasm contract failed: unknown request",
);

/// A chain whose state is of this height and that answers contract messages, asked or simulated, with `answers`.
pub(crate) async fn chain(
    height: Arc<AtomicU64>,
    answers: impl Fn(&Value) -> Answer + Send + Sync + 'static,
) -> Chain {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = Box::new(answers);
    let router = Router::new()
        .fallback(answer)
        .with_state(Arc::new(Fake { height, answers }));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Chain::new(Endpoints::new(&[url], ClientOptions::default()).unwrap())
}

async fn answer(State(fake): State<Arc<Fake>>, body: String) -> String {
    let call: Value = serde_json::from_str(&body).unwrap();
    let height = fake.height.load(Ordering::Relaxed);
    let result = match call["method"].as_str().unwrap() {
        // The state of a block is there once the next one is.
        "status" => json!({
            "node_info": { "network": "chain-1", "version": "0.38.21", "other": { "tx_index": "on" } },
            "sync_info": {
                "latest_block_height": (height + 1).to_string(), "latest_block_time": "2026-01-30T14:05:00Z",
                "earliest_block_height": "1", "catching_up": false
            }
        }),
        "abci_query" => {
            let response = match (fake.answers)(&asked(&call)) {
                Answer::Json(value) => good(&field(0x0a, value.to_string().as_bytes()), height),
                Answer::Gas(gas) => {
                    let used = [vec![0x10], varint(gas)].concat();
                    good(&field(0x0a, &used), height)
                }
                Answer::NoService => {
                    let log = "unknown query path: unknown request";
                    json!({ "code": 6, "codespace": "sdk", "log": log, "height": "0" })
                }
                Answer::Breaks => return String::new(),
                Answer::Took(..) => panic!("a contract is no transaction"),
                // A refusal says no height.
                Answer::Fails(log) => json!({ "code": 11, "codespace": "sdk", "log": log, "height": "0" }),
            };
            json!({ "response": response })
        }
        "tx" => {
            let Answer::Took(tx, data) = (fake.answers)(&json!({ "tx": {} })) else {
                panic!("there is no transaction");
            };
            json!({
                "height": height.to_string(), "index": 0, "tx": STANDARD.encode(tx),
                "tx_result": { "code": 0, "data": STANDARD.encode(executed(&data)) }
            })
        }
        other => panic!("{other} is not answered"),
    };
    json!({ "jsonrpc": "2.0", "id": call["id"], "result": result }).to_string()
}

fn good(value: &[u8], height: u64) -> Value {
    json!({ "code": 0, "value": STANDARD.encode(value), "height": height.to_string() })
}

/// `TxMsgData` of one message that the contract has carried out.
fn executed(data: &Value) -> Vec<u8> {
    let response = field(0x0a, data.to_string().as_bytes());
    let name = field(0x0a, b"/cosmwasm.wasm.v1.MsgExecuteContractResponse");
    field(0x12, &[name, field(0x12, &response)].concat())
}

/// The message in a question's protobuf: the first JSON object.
fn asked(call: &Value) -> Value {
    let bytes = hex::decode(call["params"]["data"].as_str().unwrap()).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let from = &text[text.find("{\"").unwrap()..];
    let mut found = serde_json::Deserializer::from_str(from).into_iter::<Value>();
    found.next().unwrap().unwrap()
}

/// A field of bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let len = varint(u64::try_from(bytes.len()).unwrap());
    [&[tag], len.as_slice(), bytes].concat()
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
        n >>= 7;
    }
    out.push(u8::try_from(n).unwrap());
    out
}

/// The contract's answer about a cluster.
pub(crate) fn cluster(id: &str) -> Answer {
    Answer::Json(json!({
        "cluster": {
            "cluster_id": id, "owner": "wasm1owner", "operators": [], "name": id, "job_ids": "none", "active": true,
            "pages": 1, "created_at": 1
        },
        "aggregate": {
            "total_nodes": 0, "active_nodes": 0, "states": StateCounts::default(), "available_cpu_cores": 0,
            "available_memory_gb": 0, "available_gpus": 0, "gpus_by_type": [], "available_storage_gb": 0,
            "avg_cluster_latency_ms": 0, "avg_cluster_latency_us": 0, "health_score": 0
        },
        "block": block(),
    }))
}

/// The block that answers name.
pub(crate) fn block() -> Value {
    json!({ "height": 1, "time": 1 })
}
