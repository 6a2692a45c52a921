use clap::Subcommand;
use hpc_schema::id::NodeId;

use super::Whose;
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum NodeCommand {
    /// Lists nodes: last received, last on chain, last refusal with its remedy.
    List,
    /// Shows one node: its last refusal with what to do, the chain's newest events of it, its newest orders, and how its
    /// newest reports ended.
    Show {
        #[command(flatten)]
        whose: Whose,
        /// How many of its ended reports are shown, the newest.
        #[arg(long, default_value_t = 20)]
        reports: u32,
    },
    /// Shows nodes again and again until Ctrl-C: a screen that renews itself on a terminal, else one list after the
    /// other, as JSON one document a line.
    #[command(after_help = "Example:\n  virtengine-provider node watch node-hpc1-compute-042 --every 1s")]
    Watch {
        /// Only this node.
        node_id: Option<NodeId>,
        /// How often.
        #[arg(long, default_value = "2s")]
        every: Span,
    },
    /// Refuses a node's traffic within a second; the node is told the reason.
    #[command(
        after_help = "Example:\n  virtengine-provider node disable node-hpc1-compute-042 --reason 'disk is failing, ticket 4711'"
    )]
    Disable {
        #[command(flatten)]
        whose: Whose,
        /// Why; the node shows it.
        #[arg(long)]
        reason: String,
    },
    /// Takes a node's traffic again; lets one register again that the chain has pruned since, and that no list shows.
    Enable {
        #[command(flatten)]
        whose: Whose,
    },
    /// Records a drain on chain, signed and paid by the operator key: the node takes no new work.
    Drain {
        #[command(flatten)]
        whose: Whose,
        /// For people; becomes public.
        #[arg(long)]
        reason: Option<String>,
        /// For how long a drained node that is switched off is not deregistered [default: 7 days].
        #[arg(long, value_name = "SPAN")]
        lasts: Option<Span>,
    },
    /// Ends a drain on chain.
    Resume {
        #[command(flatten)]
        whose: Whose,
    },
}
