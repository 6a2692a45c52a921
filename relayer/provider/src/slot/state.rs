use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a slot is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    /// Found, and nobody's to let.
    Candidate,
    /// To be let once it is wiped and proven clean.
    Approved,
    /// Proven clean.
    Free,
    /// A machine has it.
    Leased,
    /// The machine is being taken down.
    Releasing,
    /// Nobody knows whether it is clean.
    Quarantined,
    /// Not let any more.
    Retired,
}

impl SlotState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Candidate,
        Self::Approved,
        Self::Free,
        Self::Leased,
        Self::Releasing,
        Self::Quarantined,
        Self::Retired,
    ];

    /// The word in JSON and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Approved => "approved",
            Self::Free => "free",
            Self::Leased => "leased",
            Self::Releasing => "releasing",
            Self::Quarantined => "quarantined",
            Self::Retired => "retired",
        }
    }

    /// Whether nobody's machine is on it, so that it can be approved, wiped and retired.
    #[must_use]
    pub fn is_idle(self) -> bool {
        !matches!(self, Self::Leased | Self::Releasing)
    }
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SlotState {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|x| x.as_str() == s).ok_or_else(|| {
            "must be candidate, approved, free, leased, releasing, quarantined or retired".to_owned()
        })
    }
}
