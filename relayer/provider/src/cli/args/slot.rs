use clap::Subcommand;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::task::SlotId;

use super::Whose;
use crate::slot::SlotState;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SlotCommand {
    /// Lists slots and who has them.
    List {
        /// Only of this node.
        #[arg(long)]
        node_id: Option<NodeId>,
        /// Only of this cluster.
        #[arg(long)]
        cluster_id: Option<ClusterId>,
        /// Only in this state: candidate, approved, free, leased, releasing, quarantined, retired.
        #[arg(long)]
        state: Option<SlotState>,
    },
    /// Puts a candidate on record that slice.topology_discover does not find, such as one without a GPU.
    #[command(after_help = "Example:\n  \
        virtengine-provider slot add node-hpc1-compute-042 --slot @slot-0.json")]
    Add {
        #[command(flatten)]
        whose: Whose,
        /// A slot as slice.vm_provision takes it: JSON object, or @FILE, or @- for standard input.
        #[arg(long)]
        slot: String,
    },
    /// Approves a slot; its node wipes it, and proof of that makes it free.
    #[command(after_help = "Example:\n  \
        virtengine-provider slot approve node-hpc1-compute-042 slot-0000.3b.00.0 --vcpus 12 --memory-mib 65536")]
    Approve {
        #[command(flatten)]
        which: WhichSlotArgs,
        /// Virtual CPUs of a machine on it [default: as it is, at first 12].
        #[arg(long)]
        vcpus: Option<u32>,
        /// Memory of a machine on it, MiB [default: as it is, at first 65536].
        #[arg(long)]
        memory_mib: Option<u32>,
    },
    /// Lets a slot not be let any more.
    Retire(WhichSlotArgs),
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WhichSlotArgs {
    #[command(flatten)]
    pub(in crate::cli) whose: Whose,
    /// The slot.
    pub(in crate::cli) slot_id: SlotId,
}
