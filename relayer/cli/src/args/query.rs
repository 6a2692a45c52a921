//! `query`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hpc_chain::hash::TxHash;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::registry::NodeFilter;

use super::{Connect, KeyringArgs, Page};

pub(super) const EXAMPLES: &str = "\
Examples:
  virtengine query hpc node node-hpc1-compute-042
  virtengine query hpc nodes --state active --min-gpus 4 -o json
  virtengine query bank balance owner
  virtengine query tx 6C7F2A51D0B7E8DA4F0C6F0B1F3E2D4C5B6A79880716253443526170899AABBC";

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: QueryCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueryCommand {
    /// The registry: nodes, clusters, parameters.
    #[command(
        subcommand,
        after_help = "\
Examples:
  virtengine query hpc node node-hpc1-compute-042
  virtengine query hpc nodes --cluster-id hpc-cluster-1 --schedulable true
  virtengine query hpc aggregate hpc-cluster-1 -o yaml"
    )]
    Hpc(HpcQuery),
    /// Accounts' money.
    #[command(
        subcommand,
        after_help = "\
Examples:
  virtengine query bank balance owner"
    )]
    Bank(BankQuery),
    /// A transaction by its hash.
    #[command(after_help = "\
Examples:
  virtengine query tx 6C7F2A51D0B7E8DA4F0C6F0B1F3E2D4C5B6A79880716253443526170899AABBC
  virtengine query tx 6C7F2A51D0B7E8DA4F0C6F0B1F3E2D4C5B6A79880716253443526170899AABBC -o json")]
    Tx {
        /// 64 hex digits.
        hash: TxHash,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BankQuery {
    /// What an account holds.
    #[command(after_help = "\
Examples:
  virtengine query bank balance owner
  virtengine query bank balance wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t --denom stake -o json")]
    Balance {
        /// An address, or the name of a key in the keyring.
        account: String,
        /// Only this denomination.
        #[arg(long)]
        denom: Option<String>,
        #[command(flatten)]
        keyring: KeyringArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HpcQuery {
    /// Parameters: intervals, thresholds, limits.
    #[command(after_help = "\
Examples:
  virtengine query hpc params
  virtengine query hpc params -o json")]
    Params,
    /// Administration: admin, version, pause.
    #[command(after_help = "\
Examples:
  virtengine query hpc config")]
    Config,
    /// One cluster with its sums.
    #[command(after_help = "\
Examples:
  virtengine query hpc cluster hpc-cluster-1
  virtengine query hpc cluster hpc-cluster-1 -o yaml")]
    Cluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Clusters in order of their ids.
    #[command(after_help = "\
Examples:
  virtengine query hpc clusters
  virtengine query hpc clusters --owner wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t --all -o json")]
    Clusters {
        /// Only this owner's.
        #[arg(long, value_name = "ADDRESS")]
        owner: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// One node as the chain knows it.
    #[command(after_help = "\
Examples:
  virtengine query hpc node node-hpc1-compute-042
  virtengine query hpc node node-hpc1-compute-042 --cluster-id hpc-cluster-1 -o json")]
    Node {
        /// Which node.
        node_id: NodeId,
        /// Needed when several clusters have a node of this id.
        #[arg(long, value_name = "ID")]
        cluster_id: Option<ClusterId>,
    },
    /// Nodes that fit all conditions, in order of cluster, page, slot.
    #[command(after_help = "\
Examples:
  virtengine query hpc nodes
  virtengine query hpc nodes --cluster-id hpc-cluster-1 --state offline --all
  virtengine query hpc nodes --schedulable true --min-cores 32 --min-memory-gb 128 --gpu-type A100 -o json
  virtengine query hpc nodes --limit 10 --start-after CURSOR")]
    Nodes(Box<NodesArgs>),
    /// Sums of a cluster: as recorded, and as a sweep would record them now.
    #[command(after_help = "\
Examples:
  virtengine query hpc aggregate hpc-cluster-1
  virtengine query hpc aggregate hpc-cluster-1 -o json")]
    Aggregate {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Nodes whose jobs are at risk or failed.
    #[command(after_help = "\
Examples:
  virtengine query hpc jobs-at-risk hpc-cluster-1
  virtengine query hpc jobs-at-risk hpc-cluster-1 --all -o json")]
    JobsAtRisk {
        /// Which cluster.
        cluster_id: ClusterId,
        #[command(flatten)]
        page: Page,
    },
    /// Digests that were anchored on chain, oldest first.
    #[command(after_help = "\
Examples:
  virtengine query hpc anchors hpc-cluster-1
  virtengine query hpc anchors hpc-cluster-1 --kind audit-head --all
  virtengine query hpc anchors hpc-cluster-1 --kind audit-head --digest \
9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    Anchors(AnchorsArgs),
    /// Check how a task ended, and what was proven of its cleanup: the file's signatures and log, and their digest on chain.
    #[command(after_help = "\
Examples:
  virtengine-provider task prove release-7 --file release-7.json
  virtengine query hpc proof release-7.json
  virtengine query hpc proof release-7.json -o json")]
    Proof {
        /// The file that `virtengine-provider task prove` wrote.
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AnchorsArgs {
    /// Which cluster.
    pub(crate) cluster_id: ClusterId,
    /// Only this kind.
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only whether and when this digest (lower-case hex SHA-256) was anchored; exit code 3 if never.
    #[arg(long, value_name = "HEX", requires = "kind")]
    pub(crate) digest: Option<String>,
    #[command(flatten)]
    pub(crate) page: Page,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// Only this cluster.
    #[arg(long, value_name = "ID", help_heading = "Conditions")]
    cluster_id: Option<ClusterId>,
    /// Only clusters of this owner.
    #[arg(long, value_name = "ADDRESS", help_heading = "Conditions")]
    provider: Option<String>,
    /// Only this effective state: pending, active, stale, draining, drained, offline, deregistered.
    #[arg(long, help_heading = "Conditions")]
    state: Option<NodeState>,
    /// Only nodes that a scheduler may use, or only the others.
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true", require_equals = false,
        help_heading = "Conditions")]
    schedulable: Option<bool>,
    /// At least so many cores available.
    #[arg(long, value_name = "N", help_heading = "Conditions")]
    min_cores: Option<u32>,
    /// At least so much memory available, GiB.
    #[arg(long, value_name = "GIB", help_heading = "Conditions")]
    min_memory_gb: Option<u32>,
    /// At least so many GPUs available.
    #[arg(long, value_name = "N", help_heading = "Conditions")]
    min_gpus: Option<u32>,
    /// Exactly this GPU type.
    #[arg(long, value_name = "TYPE", help_heading = "Conditions")]
    gpu_type: Option<String>,
    #[command(flatten)]
    pub(crate) page: Page,
}

impl NodesArgs {
    /// The conditions as the contract takes them.
    pub(crate) fn filter(&self) -> NodeFilter {
        let Self {
            cluster_id,
            provider,
            state,
            schedulable,
            min_cores,
            min_memory_gb,
            min_gpus,
            gpu_type,
            page: _,
        } = self;
        NodeFilter {
            cluster_id: cluster_id.clone(),
            provider: provider.clone(),
            state: *state,
            schedulable: *schedulable,
            min_cores: *min_cores,
            min_memory_gb: *min_memory_gb,
            min_gpus: *min_gpus,
            gpu_type: gpu_type.clone(),
        }
    }
}
