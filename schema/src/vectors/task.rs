use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{CHAIN_ID, CONTRACT, Case, NOW, Signer, VectorError, result_of};
use crate::bytes::base64_exact;
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, ZebraVerifier};
use crate::refusal::Refusal;
use crate::task::{
    Cancellation, KeyRotation, Params, Task, TaskOutcome, TaskResult, TaskScope, cancel_message,
    result_message, rotation_message, task_hash, task_message, verify_task,
};
use crate::time::UnixSeconds;

const NONCE: [u8; 16] = [0x3b; 16];

fn input<T, E: std::fmt::Display>(r: Result<T, E>) -> Result<T, VectorError> {
    r.map_err(VectorError::input)
}

pub(super) fn generate() -> Result<Value, VectorError> {
    let (key, other, agent) = (
        Signer::from_seed(3)?,
        Signer::from_seed(4)?,
        Signer::from_seed(1)?,
    );
    let cluster: ClusterId = input("hpc-cluster-1".parse())?;
    let node: NodeId = input("node-hpc1-compute-042".parse())?;
    let scope = TaskScope {
        chain_id: CHAIN_ID,
        contract: CONTRACT,
        cluster_id: &cluster,
        node_id: &node,
    };
    let make = |kind: &str, params: &str, signer: &Signer| -> Result<Task, VectorError> {
        let mut task = Task {
            task_id: input("task-0c1d".parse())?,
            task_type: kind.into(),
            params: input(RawValue::from_string(params.into()))?,
            issued_at: input("2026-01-30T14:05:00Z".parse())?,
            expires_at: input("2026-01-30T14:10:00Z".parse())?,
            nonce: STANDARD.encode(NONCE),
            signature: String::new(),
        };
        task.signature = STANDARD.encode(signer.sign(&task_message(&scope, &task, &NONCE)));
        Ok(task)
    };
    let probe = make("diag.health_probe", r#"{"checks": ["gpu", "fabric"]}"#, &key)?;
    let rewritten = Task {
        params: input(RawValue::from_string(r#"{"checks":["gpu","fabric"]}"#.into()))?,
        ..probe.clone()
    };
    let tasks = [
        ("a health probe", probe.clone(), NOW),
        ("at its expiry", probe.clone(), NOW + 300),
        ("after its expiry", probe.clone(), NOW + 301),
        ("issued more than a minute ahead", probe.clone(), NOW - 61),
        ("parameters written again", rewritten, NOW),
        (
            "changed type",
            Task {
                task_type: "slice.topology_discover".into(),
                ..probe.clone()
            },
            NOW,
        ),
        ("another signer", make("diag.health_probe", "{}", &other)?, NOW),
        ("not in the catalogue", make("exec.shell", "{}", &key)?, NOW),
        (
            "a member that nobody knows",
            make("diag.health_probe", r#"{"command":"id"}"#, &key)?,
            NOW,
        ),
        (
            "a machine's name that leads upwards",
            make("vm.terminate", r#"{"vm_id":"../../etc"}"#, &key)?,
            NOW,
        ),
    ];
    let mut cases = Vec::new();
    for (name, task, now) in tasks {
        let message = task_message(&scope, &task, &NONCE);
        cases.push(json!({
            "name": name,
            "task": input(serde_json::to_string(&task))?,
            "message": hex::encode(&message),
            "task_hash": task_hash(&message).to_hex(),
            "now": now,
            "result": result_of(&judge(&task, &scope, &key.public, now)),
        }));
    }
    let hash = task_hash(&task_message(&scope, &probe, &NONCE));
    let mut result = TaskResult {
        task_hash: hash.to_hex(),
        outcome: TaskOutcome::Failed,
        code: Some("task_failed".into()),
        detail: Some("no such device".into()),
        result: input(RawValue::from_string(r#"{"timings": {"probe": 3}}"#.into()))?,
        started_at: input("2026-01-30T14:05:01Z".parse())?,
        finished_at: input("2026-01-30T14:05:02.5Z".parse())?,
        signature: String::new(),
    };
    let message = result_message(hash, &result);
    result.signature = STANDARD.encode(agent.sign(&message));
    let cancel = cancel_message(&scope, &probe.task_id, hash);
    let cancellation = Cancellation {
        task_id: probe.task_id.clone(),
        task_hash: hash.to_hex(),
        signature: STANDARD.encode(key.sign(&cancel)),
    };
    let turn = rotation_message(CHAIN_ID, CONTRACT, &cluster, &key.public, &other.public);
    let rotation = KeyRotation {
        old_key: key.public,
        new_key: other.public,
        signature: STANDARD.encode(key.sign(&turn)),
    };
    Ok(json!({
        "description": "Tasks as they are delivered (JSON as a string: the bytes of params count), the signed message and its hash in hex; the first task's result, cancellation, and a rotation of the task key.",
        "context": {
            "task": key.json(), "task_public_key": key.public.to_base64(), "agent": agent.json(),
            "chain_id": CHAIN_ID, "contract": CONTRACT, "cluster_id": cluster, "node_id": node,
            "result": input(serde_json::to_string(&result))?, "result_message": hex::encode(message),
            "cancellation": input(serde_json::to_string(&cancellation))?, "cancel_message": hex::encode(cancel),
            "rotation": input(serde_json::to_string(&rotation))?, "rotation_message": hex::encode(turn),
        },
        "cases": cases,
    }))
}

fn judge(task: &Task, scope: &TaskScope<'_>, key: &AgentKey, now: u64) -> Result<Params, Refusal> {
    let (kind, _) = verify_task(task, scope, key, UnixSeconds(now), &ZebraVerifier)?;
    Params::parse(kind, &task.params)
}

pub(super) fn check(context: &Case, case: &Case) -> Result<(), VectorError> {
    let (cluster, node): (ClusterId, NodeId) = (context.parsed("cluster_id")?, context.parsed("node_id")?);
    let scope = TaskScope {
        chain_id: context.text("chain_id")?,
        contract: context.text("contract")?,
        cluster_id: &cluster,
        node_id: &node,
    };
    let task: Task = serde_json::from_str(case.text("task")?).map_err(|_| case.missing("task"))?;
    let nonce = base64_exact(&task.nonce).ok_or_else(|| case.missing("nonce"))?;
    let message = task_message(&scope, &task, &nonce);
    case.same("message", &json!(hex::encode(&message)))?;
    case.same("task_hash", &json!(task_hash(&message).to_hex()))?;
    let key: AgentKey = context.parsed("task_public_key")?;
    case.same(
        "result",
        &result_of(&judge(&task, &scope, &key, case.number("now")?)),
    )
}
