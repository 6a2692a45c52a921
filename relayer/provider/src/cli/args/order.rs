use clap::Subcommand;
use hpc_schema::command::CommandType;
use hpc_schema::id::NodeId;

use super::Whose;
use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum OrderCommand {
    /// Orders something; prints the order's id.
    #[command(after_help = "Examples:\n  \
        virtengine-provider command send node-hpc1-compute-042 --type run_diagnostic --parameters '{\"name\":\"health\"}'\n  \
        virtengine-provider command send node-hpc1-compute-042 --type shutdown --parameters '{\"reason\":\"moving racks\"}' --deadline 2h")]
    Send(SendArgs),
    /// Lists orders, newest first.
    List {
        /// Only of this node.
        #[arg(long)]
        node_id: Option<NodeId>,
        /// How many.
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Shows one order.
    Show {
        /// Its id.
        command_id: String,
    },
    /// Takes back an order that the node has not acknowledged.
    Cancel {
        /// Its id.
        command_id: String,
    },
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SendArgs {
    #[command(flatten)]
    pub(in crate::cli) whose: Whose,
    /// shutdown, update_agent or run_diagnostic; drain and resume are `node drain` and `node resume`.
    #[arg(long = "type")]
    pub(in crate::cli) kind: CommandType,
    /// JSON object; see docs/protocol.md, section 2.5.
    #[arg(long, default_value = "{}")]
    pub(in crate::cli) parameters: String,
    /// Not to be begun later than this, up to 7 days from now.
    #[arg(long, default_value = "1h", value_name = "SPAN")]
    pub(in crate::cli) deadline: Span,
}
