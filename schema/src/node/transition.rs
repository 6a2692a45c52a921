//! Arrows of the lifecycle.

use super::NodeState;
use crate::registry::JobsStatus;

/// Why an arrow was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A registration.
    Registered,
    /// The first heartbeat that counts.
    Heartbeat,
    /// A report after silence.
    Recovered,
    /// Silence beyond a threshold.
    Silence,
    /// The owner or an operator ordered it.
    Provider,
    /// The node's own status says so.
    Agent,
    /// A draining node runs nothing any more.
    JobsDone,
    /// A drained node runs something again.
    JobsStarted,
    /// `deregister_node`.
    Deregistered,
}

impl Reason {
    /// The word in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Heartbeat => "heartbeat",
            Self::Recovered => "recovered",
            Self::Silence => "silence",
            Self::Provider => "provider",
            Self::Agent => "agent",
            Self::JobsDone => "jobs_done",
            Self::JobsStarted => "jobs_started",
            Self::Deregistered => "deregistered",
        }
    }
}

/// One arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transition {
    /// State before; `None` is UNKNOWN.
    pub from: Option<NodeState>,
    /// State after.
    pub to: NodeState,
    /// Why.
    pub reason: Reason,
}

impl Transition {
    /// What the arrow does to the jobs of a node that had some (`had_jobs`): at risk on OFFLINE, failed on
    /// DEREGISTERED, normal again when OFFLINE is left by a report. A node that drained without jobs has none.
    #[must_use]
    pub fn jobs(&self, had_jobs: bool) -> Option<JobsStatus> {
        match (self.from, self.to) {
            _ if !had_jobs => None,
            (_, NodeState::Deregistered) => Some(JobsStatus::Failed),
            (_, NodeState::Offline) => Some(JobsStatus::AtRisk),
            (Some(NodeState::Offline), _) => Some(JobsStatus::Normal),
            _ => None,
        }
    }
}
