//! `health.status` as it stands in heartbeats, report bodies and hot records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the agent says about its node. The numbers are those of the report body's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// Everything works.
    Healthy = 1,
    /// Works with restrictions; still schedulable.
    Degraded = 2,
    /// Reports, but must get no work.
    Unhealthy = 3,
    /// The site drains the node: no new work, running work finishes.
    Draining = 4,
    /// Clean stop: no further heartbeat is to be expected.
    Offline = 5,
}

impl HealthStatus {
    /// Every status, by number.
    pub const ALL: [Self; 5] = [
        Self::Healthy,
        Self::Degraded,
        Self::Unhealthy,
        Self::Draining,
        Self::Offline,
    ];

    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::Offline => "offline",
        }
    }

    /// The three bits in a report, 1 to 5; 0 means that nothing was reported yet.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Healthy => 1,
            Self::Degraded => 2,
            Self::Unhealthy => 3,
            Self::Draining => 4,
            Self::Offline => 5,
        }
    }

    /// The status with this number; `None` for 0 (nothing reported) and above 5.
    #[must_use]
    pub fn from_bits(n: u8) -> Option<Self> {
        match n {
            1 => Some(Self::Healthy),
            2 => Some(Self::Degraded),
            3 => Some(Self::Unhealthy),
            4 => Some(Self::Draining),
            5 => Some(Self::Offline),
            _ => None,
        }
    }

    /// Healthy or degraded: may get work if the node is ACTIVE and its cluster active.
    #[must_use]
    pub fn is_schedulable(self) -> bool {
        matches!(self, Self::Healthy | Self::Degraded)
    }
}

impl std::fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
