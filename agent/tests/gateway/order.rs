//! Orders of the provider, signed as the cluster's task key does it, or otherwise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::command::{Command, CommandScope, command_message};
use hpc_schema::task::{KeyRotation, rotation_message};
use hpc_schema::time::Rfc3339;
use serde_json::value::RawValue;
use virtengine_node_agent::key::NodeKey;

use super::{CHAIN, CLUSTER, CONTRACT, NODE, now, task_key};

/// What an order is signed with and for; each test of a wrong one changes a part.
pub struct Signed<'a> {
    pub id: &'a str,
    pub kind: &'a str,
    pub parameters: &'a str,
    pub key: NodeKey,
    pub cluster: &'a str,
    pub node: &'a str,
    pub issued: i64,
    pub deadline: i64,
}

impl<'a> Signed<'a> {
    pub fn new(id: &'a str, kind: &'a str, parameters: &'a str) -> Self {
        Self {
            id,
            kind,
            parameters,
            key: task_key(),
            cluster: CLUSTER,
            node: NODE,
            issued: 0,
            deadline: 600,
        }
    }

    pub fn command(&self) -> Command {
        let at = |s: i64| Rfc3339::from_unix(now().0.saturating_add_signed(s), 0).unwrap();
        let nonce = [7; 16];
        let mut command = Command {
            command_id: self.id.to_owned(),
            command_type: self.kind.to_owned(),
            parameters: RawValue::from_string(self.parameters.to_owned()).unwrap(),
            deadline: at(self.deadline),
            issued_at: at(self.issued),
            nonce: STANDARD.encode(nonce),
            signature: String::new(),
        };
        let (cluster, node) = (self.cluster.parse().unwrap(), self.node.parse().unwrap());
        let scope = CommandScope {
            chain_id: CHAIN,
            contract: CONTRACT,
            cluster_id: &cluster,
            node_id: &node,
        };
        command.signature = STANDARD.encode(self.key.sign(&command_message(&scope, &command, &nonce)));
        command
    }
}

/// An order that is signed as it should be.
pub fn order(id: &str, kind: &str, parameters: &str) -> Command {
    Signed::new(id, kind, parameters).command()
}

/// The word of one task key for the next.
pub fn rotation(old: &NodeKey, new: &NodeKey) -> KeyRotation {
    let (old_key, new_key) = (old.public(), new.public());
    let message = rotation_message(CHAIN, CONTRACT, &CLUSTER.parse().unwrap(), &old_key, &new_key);
    let signature = STANDARD.encode(old.sign(&message));
    KeyRotation {
        old_key,
        new_key,
        signature,
    }
}
