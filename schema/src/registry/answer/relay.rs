//! What relayers and auditors read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BlockRef, Drain};
use crate::id::NodeId;
use crate::key::{AgentKey, on_record};
use crate::node::NodeState;
use crate::time::UnixSeconds;

/// What a relayer needs of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayView {
    /// Which node.
    pub node_id: NodeId,
    /// Page of its slot.
    pub page: u16,
    /// Slot in the page.
    pub slot: u8,
    /// Registration epoch.
    pub epoch: u64,
    /// Last sequence on chain in this epoch.
    pub sequence: u32,
    /// The agent's key.
    #[serde(deserialize_with = "on_record")]
    pub agent_pubkey: AgentKey,
    /// Hex of the stored section digest (16 bytes); zeros before the first.
    pub section_digest: String,
    /// Recorded state.
    pub recorded_state: NodeState,
    /// Effective state.
    pub state: NodeState,
    /// Last heartbeat that counted.
    pub last_heartbeat: UnixSeconds,
    /// Since when OFFLINE is on record, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline_since: Option<UnixSeconds>,
    /// Whether a provider's drain is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// For relayers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayAnswer {
    /// Known ones of the nodes asked for.
    pub nodes: Vec<RelayView>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// Raw bytes, base64; the layout stands in `docs/protocol.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RawPageAnswer {
    /// Hot page.
    pub hot: String,
    /// Key page.
    pub keys: String,
    /// Section page.
    pub sections: String,
    /// Statistics page.
    pub stats: String,
    /// Block of this answer.
    pub block: BlockRef,
}
