use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{CHAIN_ID, CONTRACT, Case, NOW, Signer, VectorError, result_of};
use crate::bytes::base64_exact;
use crate::command::{Command, CommandScope, command_message, verify_command};
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, ZebraVerifier};
use crate::time::UnixSeconds;

const NONCE: [u8; 16] = [0x2a; 16];

pub(super) fn generate() -> Result<Value, VectorError> {
    let (task, other) = (Signer::from_seed(3)?, Signer::from_seed(4)?);
    let cluster: ClusterId = "hpc-cluster-1".parse().map_err(VectorError::input)?;
    let node: NodeId = "node-hpc1-compute-042".parse().map_err(VectorError::input)?;
    let scope = CommandScope {
        chain_id: CHAIN_ID,
        contract: CONTRACT,
        cluster_id: &cluster,
        node_id: &node,
    };
    let make = |command_type: &str, parameters: &str, signer: &Signer| -> Result<Command, VectorError> {
        let mut command = Command {
            command_id: "cmd-7f3a".into(),
            command_type: command_type.into(),
            parameters: RawValue::from_string(parameters.into()).map_err(VectorError::input)?,
            deadline: "2026-01-30T14:10:00Z".parse().map_err(VectorError::input)?,
            issued_at: "2026-01-30T14:05:00Z".parse().map_err(VectorError::input)?,
            nonce: STANDARD.encode(NONCE),
            signature: String::new(),
        };
        command.signature = STANDARD.encode(signer.sign(&command_message(&scope, &command, &NONCE)));
        Ok(command)
    };
    let drain = make("drain", r#"{"reason": "maintenance"}"#, &task)?;
    let reformatted = Command {
        parameters: RawValue::from_string(r#"{"reason":"maintenance"}"#.into())
            .map_err(VectorError::input)?,
        ..drain.clone()
    };
    let commands = [
        ("drain", drain.clone(), NOW),
        ("resume", make("resume", "{}", &task)?, NOW),
        ("at the deadline", drain.clone(), NOW + 300),
        ("after the deadline", drain.clone(), NOW + 301),
        ("parameters written again", reformatted, NOW),
        (
            "changed type",
            Command {
                command_type: "shutdown".into(),
                ..drain
            },
            NOW,
        ),
        ("another signer", make("shutdown", "{}", &other)?, NOW),
        ("a type of tomorrow", make("reboot", "{}", &task)?, NOW),
    ];
    let mut cases = Vec::new();
    for (name, command, now) in commands {
        let result = verify_command(&command, &scope, &task.public, UnixSeconds(now), &ZebraVerifier);
        cases.push(json!({
            "name": name,
            "command": serde_json::to_string(&command).map_err(VectorError::input)?,
            "message": hex::encode(command_message(&scope, &command, &NONCE)),
            "now": now,
            "result": result_of(&result),
        }));
    }
    Ok(json!({
        "description": "Commands as they stand in a heartbeat's answer (JSON as a string: the bytes of parameters count), and the signed message in hex.",
        "context": {
            "task": task.json(), "task_public_key": task.public.to_base64(),
            "chain_id": CHAIN_ID, "contract": CONTRACT, "cluster_id": cluster, "node_id": node,
        },
        "cases": cases,
    }))
}

pub(super) fn check(context: &Case, case: &Case) -> Result<(), VectorError> {
    let (cluster, node): (ClusterId, NodeId) = (context.parsed("cluster_id")?, context.parsed("node_id")?);
    let scope = CommandScope {
        chain_id: context.text("chain_id")?,
        contract: context.text("contract")?,
        cluster_id: &cluster,
        node_id: &node,
    };
    let command: Command =
        serde_json::from_str(case.text("command")?).map_err(|_| case.missing("command"))?;
    let nonce = base64_exact(&command.nonce).ok_or_else(|| case.missing("nonce"))?;
    case.same(
        "message",
        &json!(hex::encode(command_message(&scope, &command, &nonce))),
    )?;
    let key: AgentKey = context.parsed("task_public_key")?;
    let now = UnixSeconds(case.number("now")?);
    case.same(
        "result",
        &result_of(&verify_command(&command, &scope, &key, now, &ZebraVerifier)),
    )
}
