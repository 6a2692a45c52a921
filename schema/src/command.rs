//! Orders from the provider to a node, signed by the cluster's task key (protocol decision 11):
//! whoever takes over the gateway's TLS cannot shut a site down.

mod ack;
mod parameters;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::bytes::{base64_exact, push_lp};
use crate::code::Code;
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, Verifier};
use crate::refusal::Refusal;
use crate::time::{Rfc3339, UnixSeconds};

pub use ack::{
    Acknowledgement, AcknowledgementStatus, MAX_ACKNOWLEDGEMENT_DETAIL, MAX_ACKNOWLEDGEMENT_REPORT,
    MAX_ACKNOWLEDGEMENTS,
};
pub use parameters::{MAX_PARAMETERS_BYTES, Parameters, Reason, RunDiagnostic, UpdateAgent};

/// What a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandType {
    /// Take no new work; let running work finish.
    Drain,
    /// Take work again.
    Resume,
    /// Stop the agent cleanly.
    Shutdown,
    /// Install another version of the agent.
    UpdateAgent,
    /// Run a diagnostic and report it.
    RunDiagnostic,
}

impl CommandType {
    /// Every type.
    pub const ALL: [Self; 5] = [
        Self::Drain,
        Self::Resume,
        Self::Shutdown,
        Self::UpdateAgent,
        Self::RunDiagnostic,
    ];

    /// The word in JSON and in the signed bytes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Resume => "resume",
            Self::Shutdown => "shutdown",
            Self::UpdateAgent => "update_agent",
            Self::RunDiagnostic => "run_diagnostic",
        }
    }
}

impl fmt::Display for CommandType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a command that this version knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown command; one of drain, resume, shutdown, update_agent, run_diagnostic")]
pub struct CommandTypeError;

impl FromStr for CommandType {
    type Err = CommandTypeError;
    fn from_str(s: &str) -> Result<Self, CommandTypeError> {
        Self::ALL
            .into_iter()
            .find(|t| t.as_str() == s)
            .ok_or(CommandTypeError)
    }
}

/// A command as it stands in a heartbeat's answer. The type stays text, so that a newer gateway's
/// command does not make the whole answer unreadable; [`verify_command`] gives it its type.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// Unique; a command that was carried out is not carried out again.
    #[schemars(length(min = 1, max = 64))]
    pub command_id: String,
    /// What is to be done.
    #[serde(rename = "type")]
    #[schemars(with = "CommandType")]
    pub command_type: String,
    /// Raw JSON object; its bytes as transmitted are signed.
    #[serde(default = "no_parameters")]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub parameters: Box<RawValue>,
    /// Not to be begun afterwards.
    pub deadline: Rfc3339,
    /// When it was signed.
    pub issued_at: Rfc3339,
    /// Base64 of 16 random bytes.
    pub nonce: String,
    /// Base64 Ed25519 signature by the task key over [`command_message`].
    pub signature: String,
}

fn no_parameters() -> Box<RawValue> {
    serde_json::value::RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameters may name secrets of a site.
        f.debug_struct("Command")
            .field("command_id", &self.command_id)
            .field("type", &self.command_type)
            .field("deadline", &self.deadline)
            .field("issued_at", &self.issued_at)
            .finish_non_exhaustive()
    }
}

/// To whom a command is bound.
#[derive(Debug, Clone, Copy)]
pub struct CommandScope<'a> {
    /// The chain.
    pub chain_id: &'a str,
    /// Bech32 address of the registry contract.
    pub contract: &'a str,
    /// The cluster.
    pub cluster_id: &'a ClusterId,
    /// The node.
    pub node_id: &'a NodeId,
}

/// What the task key signs: `"hpc-command-v1" ‖ lp(chain_id) ‖ lp(contract) ‖ lp(cluster_id) ‖ lp(node_id) ‖
/// lp(command_id) ‖ lp(type) ‖ SHA-256(parameters as transmitted) 32 ‖ issued_at u64 ‖ deadline u64 ‖ nonce 16`;
/// lp is a big-endian u16 length and the bytes, times are whole UNIX seconds, rounded down.
#[must_use]
pub fn command_message(scope: &CommandScope<'_>, command: &Command, nonce: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"hpc-command-v1");
    for text in [
        scope.chain_id,
        scope.contract,
        scope.cluster_id.as_str(),
        scope.node_id.as_str(),
        &command.command_id,
        &command.command_type,
    ] {
        push_lp(&mut out, text);
    }
    out.extend_from_slice(&Sha256::digest(command.parameters.get().as_bytes()));
    out.extend_from_slice(&command.issued_at.seconds().0.to_be_bytes());
    out.extend_from_slice(&command.deadline.seconds().0.to_be_bytes());
    out.extend_from_slice(nonce);
    out
}

/// Checks a command and gives its type. The caller sees to it that one command id is carried out once.
///
/// # Errors
/// [`Code::Malformed`] for a nonce, signature, id or parameters of another form;
/// [`Code::TaskSignatureInvalid`] if the task key did not sign it for this node;
/// [`Code::TaskExpired`] after the deadline; [`Code::TimestampInFuture`] if it was issued more than a
/// minute ahead; [`Code::UnsupportedVersion`] for a type that this version does not know.
pub fn verify_command(
    command: &Command,
    scope: &CommandScope<'_>,
    task_key: &AgentKey,
    now: UnixSeconds,
    verifier: &impl Verifier,
) -> Result<CommandType, Refusal> {
    let malformed = |field: &str, what: &str| {
        Err(Refusal::field(Code::Malformed, format!("commands.{field}"), what).malformed())
    };
    if command.command_id.is_empty() || command.command_id.len() > 64 {
        return malformed("command_id", "must have 1 to 64 bytes");
    }
    if !command.parameters.get().starts_with('{') {
        return malformed("parameters", "must be an object");
    }
    let Some(nonce) = base64_exact::<16>(&command.nonce) else {
        return malformed("nonce", "must be base64 of 16 bytes");
    };
    let Some(signature) = base64_exact::<64>(&command.signature) else {
        return malformed("signature", "must be base64 of 64 bytes");
    };
    if !verifier.verify(
        &command_message(scope, command, &nonce),
        &signature,
        task_key.as_bytes(),
    ) {
        return Err(Refusal::field(
            Code::TaskSignatureInvalid,
            "commands.signature",
            "does not verify with the cluster's task key for this node",
        ));
    }
    if now > command.deadline.seconds() {
        return Err(Refusal::field(
            Code::TaskExpired,
            "commands.deadline",
            format_args!("was {}, it is {now}", command.deadline),
        ));
    }
    if command.issued_at.seconds().since(now) > crate::report::MAX_AHEAD_SECONDS {
        return Err(Refusal::field(
            Code::TimestampInFuture,
            "commands.issued_at",
            format_args!("is {}, it is {now}", command.issued_at),
        ));
    }
    command
        .command_type
        .parse()
        .map_err(|e: CommandTypeError| Refusal::field(Code::UnsupportedVersion, "commands.type", e))
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
