//! The answer to a heartbeat (specification 000 "Heartbeat Response", protocol decision 10).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::command::Command;
use crate::heartbeat::HealthStatus;
use crate::id::NodeId;
use crate::key::{AgentKey, on_record};
use crate::node::NodeState;
use crate::refusal::Refusal;
use crate::registry::{JobIds, Params};
use crate::task::KeyRotation;
use crate::time::Rfc3339;

/// Body of the answer: `{"response": {…}}`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponseBody {
    /// The answer.
    pub response: HeartbeatResponse,
}

/// What became of a heartbeat, and what the node should do next.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// Whether it is durably stored and on its way to the chain.
    pub accepted: bool,
    /// Highest sequence number durably accepted; 0 if none.
    pub sequence_ack: u64,
    /// The gateway's clock.
    pub timestamp: Rfc3339,
    /// Seconds until the next heartbeat should come: 10 to 120.
    pub next_heartbeat_seconds: u32,
    /// Signed orders.
    #[serde(default)]
    pub commands: Vec<Command>,
    /// Rotations of the key that signs them, oldest first; only beside orders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_keys: Vec<KeyRotation>,
    /// Settings to take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_updates: Option<ConfigUpdates>,
    /// With `accepted: false` why not; with `accepted: true` notices.
    #[serde(default)]
    pub errors: Vec<Notice>,
    /// What the chain knows of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainStatus>,
    /// Nodes to measure latency to.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// Settings that the gateway changes.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigUpdates {
    /// Base interval of sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_interval_seconds: Option<u32>,
    /// Ids of nodes to measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_probe_targets: Option<Vec<NodeId>>,
    /// How long local metrics stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_retention_hours: Option<u32>,
    /// What of job ids the section may hold from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ids: Option<JobIds>,
}

/// A refusal or a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// The code's word; a client may meet one that it does not know.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
    /// JSON path of the field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Notice {
    /// The code, if this version knows it.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Code::from_word(&self.code)
    }

    /// A notice that says `what`, and what to do.
    #[must_use]
    pub fn new(code: Code, what: impl std::fmt::Display) -> Self {
        Self::from(&Refusal::whole(code, what))
    }
}

impl From<&Refusal> for Notice {
    fn from(r: &Refusal) -> Self {
        Self {
            code: r.code.as_str().to_owned(),
            message: r.message.clone(),
            field: r.field.clone(),
        }
    }
}

/// The node as the chain knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainStatus {
    /// Round trip from the gateway to its chain endpoint, in milliseconds; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// The chain's last height that the gateway has seen.
    pub height: u64,
    /// Sequence of the node's last report on chain; 0 if none in this epoch.
    pub settled_sequence: u32,
    /// Registration epoch.
    pub epoch: u64,
    /// Effective state.
    pub node_state: NodeState,
}

/// A node that answers latency probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Its id, within the same cluster.
    pub node_id: NodeId,
    /// IP address.
    pub address: String,
    /// UDP port.
    pub port: u16,
    /// Its agent key.
    #[serde(deserialize_with = "on_record")]
    pub public_key: AgentKey,
}

/// When the next heartbeat should come, in seconds (decision 10): 15 for a degraded node, else the
/// configured interval; `stretch` (overload) lengthens it to at most `heartbeat_timeout` −
/// `batch_submit_interval` − 10 s; always within 10–120 s.
#[must_use]
pub fn next_heartbeat_seconds(
    params: &Params,
    health: HealthStatus,
    batch_submit_interval: u32,
    stretch: u32,
) -> u32 {
    let base = match health {
        HealthStatus::Degraded => 15,
        _ => params.heartbeat_interval,
    };
    let longest = params
        .heartbeat_timeout
        .saturating_sub(batch_submit_interval)
        .saturating_sub(10)
        .max(base);
    base.saturating_mul(stretch.max(1)).min(longest).clamp(10, 120)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn the_next_heartbeat_is_sooner_when_degraded_and_later_under_load_but_never_stale() {
        let p = Params::default();
        assert_eq!(next_heartbeat_seconds(&p, HealthStatus::Healthy, 60, 1), 30);
        assert_eq!(next_heartbeat_seconds(&p, HealthStatus::Degraded, 60, 0), 15);
        assert_eq!(next_heartbeat_seconds(&p, HealthStatus::Healthy, 60, 100), 50);
        assert_eq!(next_heartbeat_seconds(&p, HealthStatus::Healthy, 600, 100), 30);
        let slow = Params {
            heartbeat_interval: 120,
            heartbeat_timeout: 600,
            offline_threshold: 1800,
            ..p
        };
        assert_eq!(
            next_heartbeat_seconds(&slow, HealthStatus::Healthy, 5, u32::MAX),
            120
        );
    }

    #[test]
    fn a_peers_key_is_read_as_it_is_on_record_and_a_weak_one_is_none() {
        let key = |y: u8| {
            let mut bytes = [0; 32];
            bytes[0] = y;
            bytes
        };
        let read = |y| {
            let text = STANDARD.encode(key(y));
            let peer = serde_json::json!({
                "node_id": "node-0001", "address": "192.0.2.1", "port": 9000, "public_key": text,
            });
            serde_json::from_value::<Peer>(peer).map(|p| *p.public_key.as_bytes())
        };
        assert!(AgentKey::from_bytes(key(2)).is_err(), "2 is no point's");
        assert_eq!(read(2).unwrap(), key(2));
        assert!(read(1).is_err(), "anybody signs for it");
    }

    #[test]
    fn a_response_of_a_newer_gateway_is_read() {
        let text = r#"{"response": {"accepted": true, "sequence_ack": 7, "timestamp": "2026-01-30T14:05:01Z",
            "next_heartbeat_seconds": 30, "errors": [{"code": "code_of_tomorrow", "message": "m", "x": 1}],
            "chain": {"latency_ms": 150, "height": 9, "settled_sequence": 6, "epoch": 18446744073709551615,
            "node_state": "active"}, "tomorrow": {}}, "more": []}"#;
        let body: HeartbeatResponseBody = serde_json::from_str(text).unwrap();
        assert!(body.response.accepted);
        assert_eq!(body.response.errors[0].code(), None);
        assert_eq!(body.response.chain.as_ref().unwrap().epoch, u64::MAX);
        let again = serde_json::to_string(&body).unwrap();
        assert!(again.contains(r#""epoch":18446744073709551615"#), "{again}");
        assert!(!again.contains("null"), "{again}");
    }
}
