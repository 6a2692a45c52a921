use hpc_schema::id::TaskId;
use serde::{Deserialize, Serialize};

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A folder of a machine: overlay, seed, sockets.
    Machine,
    /// A process that carries the mark of an effect.
    Process,
    /// A control group among those of machines.
    ControlGroup,
    /// A user whose entry carries the mark of an effect.
    User,
    /// Limits of a tenant's user.
    Limits,
    /// A claim on a resource.
    Lease,
    /// What was being made and has not got its name.
    Unfinished,
    /// A folder of a slice's machine.
    Slice,
    /// A domain of libvirt, by its UUID.
    Domain,
    /// A machine's address for dnsmasq.
    Reservation,
    /// A machine as a target of Prometheus.
    Target,
    /// A mount below our folder. It carries no mark; it is never touched.
    Mount,
}

impl Kind {
    /// For people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Process => "process",
            Self::ControlGroup => "control group",
            Self::User => "user",
            Self::Limits => "limits",
            Self::Lease => "lease",
            Self::Unfinished => "unfinished",
            Self::Slice => "slice",
            Self::Domain => "domain",
            Self::Reservation => "reservation",
            Self::Target => "target",
            Self::Mount => "mount",
        }
    }
}

/// Something on the host that is ours by mark or place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Path, name, or number and start of a process (`pid@start`).
    pub name: String,
    /// The task by its mark; none if it is ours by its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The effect's place in the task's journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
}

impl Found {
    /// Ours by its place.
    #[must_use]
    pub fn placed(kind: Kind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            task_id: None,
            step: None,
        }
    }

    /// Ours by a mark as effects write it: `task/step`; none if it is no such mark.
    #[must_use]
    pub fn marked(kind: Kind, name: impl Into<String>, mark: &str) -> Option<Self> {
        let (task, step) = mark.rsplit_once('/')?;
        Some(Self {
            kind,
            name: name.into(),
            task_id: Some(task.parse().ok()?),
            step: Some(step.parse().ok()?),
        })
    }

    /// The process that it is.
    #[must_use]
    pub fn process(&self) -> Option<(u32, u64)> {
        let (pid, start) = self.name.split_once('@')?;
        Some((pid.parse().ok()?, start.parse().ok()?))
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)?;
        match &self.task_id {
            Some(task) => write!(f, " of task {task}"),
            None => Ok(()),
        }
    }
}
