//! Data that executions return.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Data returned by `submit_reports`. Items are counted from 0 over all groups in order; those that
/// are listed nowhere were accepted without a notice. A group whose framing cannot be read counts in
/// `bad_groups` and its unread items in nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitAnswer {
    /// How many were accepted.
    pub accepted: u32,
    /// `[item, code number]` of each refused one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(u32, u8)>,
    /// `[item, code number]` of accepted ones with a notice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<(u32, u8)>,
    /// `[group, code number]` of groups that could not be read to their end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_groups: Vec<(u32, u8)>,
}

/// Data returned by `register_node`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterAnswer {
    /// Registration epoch.
    pub epoch: u64,
    /// Page of its slot.
    pub page: u16,
    /// Slot in the page.
    pub slot: u8,
}

/// Data returned by `sweep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepAnswer {
    /// Pages visited.
    pub pages: u32,
    /// Transitions recorded.
    pub transitions: u32,
    /// Whether the walk has come to the end and will begin anew.
    pub done: bool,
}

/// Data returned by `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PruneAnswer {
    /// Nodes removed.
    pub removed: u32,
    /// Whether nothing more is due.
    pub done: bool,
}
