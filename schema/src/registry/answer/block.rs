//! The block of an answer, and the contract itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::UnixSeconds;

/// The block that an answer was read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockRef {
    /// Height.
    pub height: u64,
    /// Its time.
    pub time: UnixSeconds,
}

/// Administration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigAnswer {
    /// Who may change parameters.
    pub admin: String,
    /// Who has been offered the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_admin: Option<String>,
    /// Whether registrations are paused.
    pub registrations_paused: bool,
    /// Contract name and version (cw2).
    pub contract: String,
    /// Semantic version.
    pub version: String,
    /// Storage layout version.
    pub layout: u32,
    /// Chain id the contract runs on.
    pub chain_id: String,
    /// Block of this answer.
    pub block: BlockRef,
}
