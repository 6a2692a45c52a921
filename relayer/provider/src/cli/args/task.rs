use clap::Subcommand;
use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{TaskState, TaskType};

use super::Whose;
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TaskCommand {
    /// Submits a task; prints its id. A node that waits has it at once.
    #[command(after_help = "Examples:\n  \
        virtengine-provider task submit node-hpc1-compute-042 --type diag.health_probe\n  \
        virtengine-provider task submit node-hpc1-compute-042 --type vm.terminate --params '{\"vm_id\":\"vm-7\"}' --expires 10m\n  \
        virtengine-provider task submit node-hpc1-compute-042 --type vm.launch --params @vm-7.json --task-id launch-vm-7")]
    Submit(SubmitArgs),
    /// Lists tasks, newest first.
    List {
        /// Only of this node.
        #[arg(long)]
        node_id: Option<NodeId>,
        /// Only in this state: queued, dispatched, running, completed, failed, expired, cancelled.
        #[arg(long, value_parser = state)]
        state: Option<TaskState>,
        /// How many.
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Shows one task, its phases and its signed result.
    Show(WhichTask),
    /// Prints a task's phases as they come, until it is over; exit code 0 if it was completed.
    Watch {
        #[command(flatten)]
        which: WhichTask,
        /// Longest to watch.
        #[arg(long, default_value = "24h")]
        within: Span,
    },
    /// Takes a task back; what a node has done of it is undone.
    Cancel(WhichTask),
    /// Lets a task be delivered that waits for approval.
    Approve(WhichTask),
    /// Writes a file that proves how a task ended: the node's signature, the audit log from its row to an anchored one.
    /// `virtengine query hpc proof` checks it against the chain.
    #[command(after_help = "Examples:\n  \
        virtengine-provider task prove release-7 --file release-7.json\n  \
        virtengine query hpc proof release-7.json")]
    Prove {
        #[command(flatten)]
        which: WhichTask,
        /// Where to write it; without it standard output.
        #[arg(long, value_name = "FILE")]
        file: Option<std::path::PathBuf>,
    },
    /// Prints every type with the JSON Schemas of its parameters and its result.
    Catalog,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SubmitArgs {
    #[command(flatten)]
    pub(in crate::cli) whose: Whose,
    /// What is to be done; see `task catalog`.
    #[arg(long = "type")]
    pub(in crate::cli) kind: TaskType,
    /// JSON object, or @FILE, or @- for standard input.
    #[arg(long, default_value = "{}")]
    pub(in crate::cli) params: String,
    /// Not to be begun later than this, up to 7 days from now.
    #[arg(long, default_value = "1h", value_name = "SPAN")]
    pub(in crate::cli) expires: Span,
    /// Its id; the same submission may be repeated under it [default: a new one].
    #[arg(long)]
    pub(in crate::cli) task_id: Option<TaskId>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WhichTask {
    /// The task's id.
    pub(in crate::cli) task_id: TaskId,
    /// Its cluster, if several have a task of this id.
    #[arg(long)]
    pub(in crate::cli) cluster_id: Option<ClusterId>,
}

fn state(text: &str) -> Result<TaskState, String> {
    text.parse().map_err(|()| {
        "must be queued, dispatched, running, completed, failed, expired or cancelled".to_owned()
    })
}
