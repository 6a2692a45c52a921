use hpc_schema::command::CommandType;
use serde::{Deserialize, Serialize};

use crate::command::outcome::Outcome;

/// A drain that the provider ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OrderedDrain {
    /// The order.
    pub command_id: String,
    /// UNIX seconds.
    pub since: u64,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id.
    pub command_id: String,
    /// What is to be done.
    #[serde(rename = "type")]
    pub kind: CommandType,
    /// The JSON that was signed.
    pub parameters: String,
    /// UNIX seconds.
    pub issued_at: u64,
    /// UNIX seconds after which it is not begun.
    pub deadline: u64,
    /// When it was written down.
    pub taken_at: u64,
    /// How often it was begun.
    #[serde(default)]
    pub attempts: u32,
    /// The boot of the host in which it was begun, where it ends that boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What the gateway has heard of it.
    #[serde(default)]
    pub(super) heard: Heard,
}

/// What the gateway has heard of an order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Heard {
    #[default]
    Nothing,
    Accepted,
    Outcome,
}

/// What became of a verified order that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is new, and has to be kept before it is begun.
    New,
    /// It was taken before; what became of it is told again.
    Known,
    /// Too many wait.
    Full,
}
