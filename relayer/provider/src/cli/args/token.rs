use std::path::PathBuf;

use clap::Subcommand;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;

use super::Whose;
use crate::config::Span;
use crate::enrol::Network;

/// Which node that waits is meant.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WhoWaits {
    #[command(flatten)]
    pub(in crate::cli) whose: Whose,
    /// Its key, if several wait under this id: the line in agent.pub.
    #[arg(long, visible_alias = "pubkey")]
    pub(in crate::cli) public_key: Option<AgentKey>,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TokenCommand {
    /// Makes a token and prints it, and nothing else, on standard output; with --from-file one for each line of the
    /// file, as node_id,token, or node_id,token,cluster_id where the file names clusters.
    #[command(after_help = "Examples:\n  \
        virtengine-provider node-token create --cluster-id hpc-cluster-1 --node-id node-hpc1-compute-042 --pubkey \"$(cat agent.pub)\"\n  \
        virtengine-provider node-token create --cluster-id hpc-cluster-1 --from-file nodes.csv > tokens.csv   # node_id,pubkey")]
    Create {
        /// The node's cluster.
        #[arg(long, required_unless_present = "from_file")]
        cluster_id: Option<ClusterId>,
        /// The node.
        #[arg(long, required_unless_present = "from_file", conflicts_with = "from_file")]
        node_id: Option<NodeId>,
        /// The agent's public key: the line in agent.pub.
        #[arg(long, required_unless_present = "from_file", conflicts_with = "from_file")]
        pubkey: Option<AgentKey>,
        /// The TPM that the node must quote by: what `virtengine-node-agent key show --attestation` prints there, or `new`
        /// for whichever it has (a replaced machine) [default: the one pinned for the node, if one is].
        #[arg(long, value_name = "KEY", conflicts_with = "from_file")]
        attestation_key: Option<String>,
        /// CSV file, a line each: node_id,pubkey or node_id,pubkey,cluster_id or
        /// node_id,pubkey,cluster_id,attestation_key; all of them or none.
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
        /// How long the token counts, up to 30 days.
        #[arg(long, default_value = "24h")]
        expires: Span,
    },
    /// Makes a token with which several nodes of a cluster register, each with its own key and id.
    #[command(after_help = "Example:\n  \
        virtengine-provider node-token join --cluster-id hpc-cluster-1 --uses 200 --range 10.20.0.0/16 --approval")]
    Join {
        /// The nodes' cluster.
        #[arg(long)]
        cluster_id: ClusterId,
        /// How many nodes may use it, up to 100000.
        #[arg(long)]
        uses: u32,
        /// Network that may use it, such as 10.20.0.0/16; may be repeated [default: any].
        #[arg(long)]
        range: Vec<Network>,
        /// Each node waits until `node-token approve` names it.
        #[arg(long)]
        approval: bool,
        /// How long the token counts, up to 30 days.
        #[arg(long, default_value = "24h")]
        expires: Span,
    },
    /// Lists join tokens and how many nodes have used them.
    JoinList,
    /// Lists nodes that wait for approval.
    Waiting,
    /// Lets a node that waits for approval register; compare its key with the node's agent.pub first.
    #[command(after_help = "Example:\n  \
        virtengine-provider node-token approve node-hpc1-compute-042 --public-key \"$(cat agent.pub)\"")]
    Approve(WhoWaits),
    /// Refuses a node that waits for approval: with that key it registers by a token of its own alone.
    #[command(after_help = "Example:\n  \
        virtengine-provider node-token reject node-hpc1-compute-042 --public-key 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")]
    Reject(WhoWaits),
    /// Lists tokens; never the tokens themselves.
    List,
    /// Takes a token back that has not been used, or a join token with all its uses that are not done.
    Revoke {
        /// Id of the token, from a list.
        jti: String,
    },
}
