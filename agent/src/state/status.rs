use hpc_schema::node::NodeState;
use serde::{Deserialize, Serialize};

use super::{StateDir, read_json, write_json};
use crate::command::OrderedDrain;
use crate::files::{Durability, FileError};

/// How the running agent is doing; times are UNIX seconds.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the agent.
    pub agent_version: String,
    /// Its process.
    pub pid: u32,
    /// When it started.
    pub started_at: u64,
    /// The node, once registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// What the registration waits for, while `run` registers the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registering: Option<String>,
    /// The gateway in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What the last heartbeat said of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// When the last heartbeat was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<u64>,
    /// When the last heartbeat was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accepted_at: Option<u64>,
    /// Heartbeats accepted since the start.
    pub accepted: u64,
    /// Attempts since the start that failed or were refused.
    pub failed: u64,
    /// Attempts that failed in a row.
    pub failures_in_a_row: u32,
    /// The last sequence number sent.
    pub sequence: u32,
    /// The highest that the gateway has stored.
    pub sequence_ack: u64,
    /// The last heartbeat that the gateway has stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Seconds until the next heartbeat, as agreed with the gateway.
    pub interval_seconds: u64,
    /// Round trip of the last heartbeat, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_latency_us: Option<u64>,
    /// The gateway's clock minus ours, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew_ms: Option<i64>,
    /// The node on chain, as the gateway reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainView>,
    /// The client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateStatus>,
    /// The last refusal by the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<Problem>,
    /// The last failure to reach it, or of the agent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Problem>,
    /// The provider's drain, while it is in force here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<OrderedDrain>,
    /// The provider's last orders, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<OrderStatus>,
    /// Collectors that do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck_collectors: Vec<String>,
    /// When the agent stopped cleanly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<u64>,
}

/// The node as the chain knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainView {
    /// Effective state.
    pub node_state: NodeState,
    /// Sequence of the last report on chain.
    pub settled_sequence: u32,
    /// The chain's height that the gateway has seen.
    pub height: u64,
    /// Registration epoch.
    pub epoch: u64,
    /// Round trip from the gateway to the chain, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// Proof of a heartbeat: its hash stands in the signed report on chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its sequence number.
    pub sequence: u32,
    /// Lower-case hex SHA-256 of the payload.
    pub payload_sha256: String,
    /// When the gateway acknowledged it, by our clock.
    pub accepted_at: u64,
}

/// The client certificate in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The file it came from.
    pub path: String,
    /// Valid until.
    pub not_after: u64,
    /// Renewed from then on.
    pub renew_at: u64,
}

/// An order of the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// Its id.
    pub command_id: String,
    /// What was to be done.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was taken, or ended.
    pub at: u64,
    /// `accepted`, `done`, `failed` or `refused`.
    pub status: String,
    /// Why, or what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// When.
    pub at: u64,
    /// Stable code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Status {
    /// Reads it; none if the agent never ran here.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(state: &StateDir) -> Result<Option<Self>, FileError> {
        read_json(&state.status())
    }

    /// Replaces the file. Not synchronised: it is news, not memory.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &StateDir) -> Result<(), FileError> {
        write_json(&state.status(), self, 0o644, Durability::Atomic)
    }
}
