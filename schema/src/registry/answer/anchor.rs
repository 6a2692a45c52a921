//! Anchored digests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BlockRef;
use crate::time::UnixSeconds;

/// One anchored digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorView {
    /// What it is of.
    pub kind: String,
    /// Lower-case hex SHA-256.
    pub digest: String,
    /// Who anchored it.
    pub sender: String,
    /// Height of its block.
    pub height: u64,
    /// Time of its block.
    pub time: UnixSeconds,
}

/// One anchor, if there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorAnswer {
    /// Absent: never anchored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<AnchorView>,
    /// Block of this answer.
    pub block: BlockRef,
}

/// A page of anchors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnchorsAnswer {
    /// Oldest first.
    pub anchors: Vec<AnchorView>,
    /// `start_after` of the next call; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Block of this answer.
    pub block: BlockRef,
}
