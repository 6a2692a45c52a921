use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a node on record (specification 000 "Node State Transitions"). UNKNOWN is having no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Registered, no report counted yet.
    Pending = 1,
    /// Reporting.
    Active = 2,
    /// Silent beyond `heartbeat_timeout`.
    Stale = 3,
    /// Takes no new jobs.
    Draining = 4,
    /// No jobs are left.
    Drained = 5,
    /// Silent beyond `offline_threshold`.
    Offline = 6,
    /// Out of the cluster until it is registered again.
    Deregistered = 7,
}

impl NodeState {
    /// Every state, in the order of its number.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Active,
        Self::Stale,
        Self::Draining,
        Self::Drained,
        Self::Offline,
        Self::Deregistered,
    ];

    /// The word in JSON, events and text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Offline => "offline",
            Self::Deregistered => "deregistered",
        }
    }

    /// The three bits in a hot record.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Pending => 1,
            Self::Active => 2,
            Self::Stale => 3,
            Self::Draining => 4,
            Self::Drained => 5,
            Self::Offline => 6,
            Self::Deregistered => 7,
        }
    }

    /// The state with this number; 0 is an empty slot.
    #[must_use]
    pub fn from_number(n: u8) -> Option<Self> {
        match n {
            1 => Some(Self::Pending),
            2 => Some(Self::Active),
            3 => Some(Self::Stale),
            4 => Some(Self::Draining),
            5 => Some(Self::Drained),
            6 => Some(Self::Offline),
            7 => Some(Self::Deregistered),
            _ => None,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The state before an arrow; `None` is UNKNOWN, the absence of a record. In events the word `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prior(pub Option<NodeState>);

impl fmt::Display for Prior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or("unknown", NodeState::as_str))
    }
}

impl FromStr for Prior {
    type Err = StateError;
    fn from_str(s: &str) -> Result<Self, StateError> {
        if s == "unknown" {
            Ok(Self(None))
        } else {
            s.parse().map(|state| Self(Some(state)))
        }
    }
}

/// Not the name of a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown state; one of pending, active, stale, draining, drained, offline, deregistered")]
pub struct StateError;

impl FromStr for NodeState {
    type Err = StateError;
    fn from_str(s: &str) -> Result<Self, StateError> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == s)
            .ok_or(StateError)
    }
}
