//! What the commands of `tx hpc` take.

use clap::{Args, ValueEnum};
use hpc_chain::gas::Coin;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use hpc_schema::registry::{ClusterCreation, JobIds};

use crate::parse::Until;

/// A node, and its cluster where the id alone does not tell.
#[derive(Debug, Args)]
pub(crate) struct NodeRef {
    /// Which node.
    pub(crate) node_id: NodeId,
    /// Needed when several clusters have a node of this id.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_id: Option<ClusterId>,
}

/// What of job ids becomes public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JobIdsArg {
    /// The ids as they are.
    Plain,
    /// 16 hex digits of a hash bound to the cluster.
    Hashed,
    /// Only how many.
    None,
}

impl From<JobIdsArg> for JobIds {
    fn from(arg: JobIdsArg) -> Self {
        match arg {
            JobIdsArg::Plain => Self::Plain,
            JobIdsArg::Hashed => Self::Hashed,
            JobIdsArg::None => Self::None,
        }
    }
}

/// What can be said of a new and of an old cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterSettings {
    /// For people: 1 to 64 printable ASCII characters.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// E.g. eu-central; up to 32 characters.
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// https URL of the site's gateway.
    #[arg(long, value_name = "URL")]
    pub(crate) gateway_endpoint: Option<String>,
    /// May register, drain and resume nodes: an address, or the name of a key in the keyring. Repeatable, at most 16.
    #[arg(long = "operator", value_name = "ADDRESS")]
    pub(crate) operators: Vec<String>,
    /// What of job ids becomes public.
    #[arg(long, value_name = "HOW")]
    pub(crate) job_ids: Option<JobIdsArg>,
}

#[derive(Debug, Args)]
pub(crate) struct CreateCluster {
    /// Unique on the contract: 4 to 64 of A-Z a-z 0-9 . _ -
    pub(crate) cluster_id: ClusterId,
    #[command(flatten)]
    pub(crate) settings: ClusterSettings,
    /// Base64 of the Ed25519 key that signs commands and tasks.
    #[arg(long, value_name = "BASE64")]
    pub(crate) task_public_key: Option<AgentKey>,
    /// What the contract's parameter `cluster_deposit` asks for, e.g. 1000000stake.
    #[arg(long, value_name = "COIN")]
    pub(crate) deposit: Option<Coin>,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateCluster {
    /// Which cluster.
    pub(crate) cluster_id: ClusterId,
    #[command(flatten)]
    pub(crate) settings: ClusterSettings,
    /// Leave the cluster without operators; --operator gives the whole new list otherwise.
    #[arg(long, conflicts_with = "operators")]
    pub(crate) no_operators: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) node: NodeRef,
    /// For people: up to 128 printable ASCII characters.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Until when an offline node is not deregistered: RFC 3339, or a span from now like 12h or 7d; at most 30 days
    /// [default: 7d].
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Until>,
}

/// Who may create clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CreationArg {
    /// Anyone who pays the deposit.
    Open,
    /// The admin alone.
    Admin,
}

impl From<CreationArg> for ClusterCreation {
    fn from(arg: CreationArg) -> Self {
        match arg {
            CreationArg::Open => Self::Open,
            CreationArg::Admin => Self::Admin,
        }
    }
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct ParamsArgs {
    /// Normal heartbeat interval, 10 to 120 seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) heartbeat_interval: Option<u32>,
    /// Silence after which a node is stale, 60 to 600 seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) heartbeat_timeout: Option<u32>,
    /// Silence after which a node is offline, 120 to 1800 seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) offline_threshold: Option<u32>,
    /// Silence after which a sweep deregisters, 600 to 86400 seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) deregistration_delay: Option<u32>,
    /// How long a deregistered node's metadata stays, a day to a year in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) retention: Option<u32>,
    /// Most reports in one message, 1024 to 8192.
    #[arg(long, value_name = "N")]
    pub(crate) batch_limit: Option<u32>,
    /// Who may create clusters.
    #[arg(long, value_name = "WHO")]
    pub(crate) cluster_creation: Option<CreationArg>,
    /// What creating a cluster costs, e.g. 1000000stake; an amount of 0 takes it away.
    #[arg(long, value_name = "COIN")]
    pub(crate) cluster_deposit: Option<Coin>,
}
