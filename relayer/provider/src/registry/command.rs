use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::command::{Command, CommandScope, CommandType, command_message};
use hpc_schema::time::{Rfc3339, UnixSeconds};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::node::{Node, OrderKind};
use crate::identity::Seed;

/// The signed commands that a node has to be told now. The same order gives the same bytes each time, so
/// that telling it again costs the agent one comparison of ids.
#[must_use]
pub fn commands_for(
    node: &Node,
    chain_id: &str,
    contract: &str,
    key: &Seed,
    now: UnixSeconds,
) -> Vec<Command> {
    let Some(order) = node.contact.order.as_ref().filter(|o| now <= o.until) else {
        return Vec::new();
    };
    let kind = match order.kind {
        OrderKind::Drain => CommandType::Drain,
        OrderKind::Resume => CommandType::Resume,
    };
    let reason = node.chain.drain.as_ref().and_then(|d| d.reason.clone());
    let parameters = match (kind, reason) {
        (CommandType::Drain, Some(reason)) => serde_json::json!({ "reason": reason }).to_string(),
        _ => "{}".to_owned(),
    };
    let digest = Sha256::digest(format!("nonce|{}|{}", order.id, order.until.0));
    let nonce: [u8; 16] = digest.first_chunk().copied().unwrap_or_default();
    let (Ok(parameters), Ok(issued_at), Ok(deadline)) = (
        RawValue::from_string(parameters),
        Rfc3339::from_unix(order.at.0, 0),
        Rfc3339::from_unix(order.until.0, 0),
    ) else {
        return Vec::new();
    };
    let mut command = Command {
        command_id: order.id.clone(),
        command_type: kind.as_str().to_owned(),
        parameters,
        deadline,
        issued_at,
        nonce: STANDARD.encode(nonce),
        signature: String::new(),
    };
    let scope = CommandScope {
        chain_id,
        contract,
        cluster_id: &node.cluster_id,
        node_id: &node.node_id,
    };
    command.signature = STANDARD.encode(key.sign(&command_message(&scope, &command, &nonce)));
    vec![command]
}
