use serde::{Deserialize, Serialize};

/// For whom the agent drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The provider ordered it.
    Order,
    /// The site's policy of health.
    Health,
}

impl By {
    /// Begins the reason in Slurm.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Order => "virtengine order",
            Self::Health => "virtengine health",
        }
    }
}
