use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a task stands at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for the node, or for approval.
    Queued,
    /// Given to the node, which has not said that it runs.
    Dispatched,
    /// The node is at it.
    Running,
    /// Done, by a result that the node signed.
    Completed,
    /// Not done; `code` says why.
    Failed,
    /// Its time was over before it was begun.
    Expired,
    /// Taken back; what it had done is undone.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Dispatched,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The word in JSON and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Dispatched => "dispatched",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing comes after it.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Expired | Self::Cancelled
        )
    }

    /// Whether `next` may follow. An end is never left; a lost delivery goes back to the queue.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Queued, Self::Dispatched | Self::Cancelled | Self::Expired)
            | (Self::Dispatched, Self::Queued | Self::Running) => true,
            (Self::Dispatched | Self::Running, end) => end.is_end(),
            _ => false,
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TaskState {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|x| x.as_str() == s).ok_or(())
    }
}
