//! `tx`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hpc_chain::gas::Coin;
use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;

use super::{Connect, CreateCluster, DrainArgs, KeyringArgs, NodeRef, ParamsArgs, SignArgs, UpdateCluster};
use crate::parse;

pub(super) const EXAMPLES: &str = "\
Examples:
  virtengine tx hpc create-cluster hpc-cluster-1 --from owner --yes
  virtengine tx hpc drain-node node-hpc1-compute-042 --reason maintenance --until 2d --from owner
  virtengine tx bank send wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t 1000000stake --from owner";

#[derive(Debug, Args)]
pub(crate) struct TxArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) sign: SignArgs,
    #[command(flatten)]
    pub(crate) keyring: KeyringArgs,
    #[command(subcommand)]
    pub(crate) command: TxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TxCommand {
    /// The registry: clusters, nodes, administration.
    #[command(
        subcommand,
        after_help = "\
Examples:
  virtengine tx hpc create-cluster hpc-cluster-1 --from owner
  virtengine tx hpc activate-cluster hpc-cluster-1 --from owner --yes -o json"
    )]
    Hpc(HpcTx),
    /// Money.
    #[command(
        subcommand,
        after_help = "\
Examples:
  virtengine tx bank send wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t 1000000stake --from owner"
    )]
    Bank(BankTx),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BankTx {
    /// Send coins to an account.
    #[command(after_help = "\
Examples:
  virtengine tx bank send wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t 1000000stake --from owner --yes")]
    Send {
        /// To whom: an address, or the name of a key in the keyring.
        to: String,
        /// E.g. 1000000stake.
        amount: Coin,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HpcTx {
    /// Create a cluster; the signer becomes its owner.
    #[command(after_help = "\
Examples:
  virtengine tx hpc create-cluster hpc-cluster-1 --from owner
  virtengine tx hpc create-cluster hpc-cluster-1 --name 'Cluster 1' --region eu-central \
--gateway-endpoint https://gateway.example:8443 --operator wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t --from owner --yes")]
    CreateCluster(Box<CreateCluster>),
    /// Change what is given; the rest stays.
    #[command(after_help = "\
Examples:
  virtengine tx hpc update-cluster hpc-cluster-1 --gateway-endpoint https://gateway.example:8443 --from owner
  virtengine tx hpc update-cluster hpc-cluster-1 --region '' --no-operators --from owner --yes

An empty --region or --gateway-endpoint takes the field away.")]
    UpdateCluster(Box<UpdateCluster>),
    /// Let the cluster's nodes become active.
    #[command(after_help = "\
Examples:
  virtengine tx hpc activate-cluster hpc-cluster-1 --from owner --yes")]
    ActivateCluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Take the cluster out of scheduling; its nodes keep their states.
    #[command(after_help = "\
Examples:
  virtengine tx hpc deactivate-cluster hpc-cluster-1 --from owner --yes")]
    DeactivateCluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Remove an inactive cluster without nodes; its deposit goes to the owner, its id is free again.
    #[command(after_help = "\
Examples:
  virtengine tx hpc close-cluster hpc-cluster-1 --from owner --yes

First deactivate the cluster, deregister its nodes, and prune them when their retention is over.")]
    CloseCluster {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Set the key that signs commands and tasks, or rotate it.
    #[command(after_help = "\
Examples:
  virtengine tx hpc set-task-key hpc-cluster-1 GZ+NkdsQN6tgMsxGMVRVqNKMT0YdYLzR3Xg3qHHRTzg= --from owner")]
    SetTaskKey {
        /// Which cluster.
        cluster_id: ClusterId,
        /// Base64 of the new Ed25519 public key.
        task_public_key: AgentKey,
        /// Base64 Ed25519 signature by the present key; only for a rotation.
        #[arg(long, value_name = "BASE64")]
        rotation_signature: Option<String>,
    },
    /// First step of handing a cluster over.
    #[command(after_help = "\
Examples:
  virtengine tx hpc propose-cluster-owner hpc-cluster-1 wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t --from owner
  virtengine tx hpc propose-cluster-owner hpc-cluster-1 --withdraw --from owner")]
    ProposeClusterOwner {
        /// Which cluster.
        cluster_id: ClusterId,
        /// Address of the new owner.
        #[arg(required_unless_present = "withdraw")]
        owner: Option<String>,
        /// Take the proposal back.
        #[arg(long, conflicts_with = "owner")]
        withdraw: bool,
    },
    /// Second step, by the proposed owner.
    #[command(after_help = "\
Examples:
  virtengine tx hpc accept-cluster-owner hpc-cluster-1 --from new-owner")]
    AcceptClusterOwner {
        /// Which cluster.
        cluster_id: ClusterId,
    },
    /// Relay a registration that the provider has signed.
    #[command(after_help = "\
Examples:
  virtengine tx hpc register-node registration.json --from owner

The file holds the members of the contract's `register_node` message: node_identity, provider_signature, provider_pubkey and,
for a rotation, rotation_signature.")]
    RegisterNode {
        /// JSON file.
        file: PathBuf,
    },
    /// Take a node out of the cluster until it is registered again.
    #[command(after_help = "\
Examples:
  virtengine tx hpc deregister-node node-hpc1-compute-042 --from owner")]
    DeregisterNode(NodeRef),
    /// Let a node take no new jobs.
    #[command(after_help = "\
Examples:
  virtengine tx hpc drain-node node-hpc1-compute-042 --from owner
  virtengine tx hpc drain-node node-hpc1-compute-042 --reason 'new memory' --until 2026-03-01T12:00:00Z --from owner --yes")]
    DrainNode(DrainArgs),
    /// End a drain.
    #[command(after_help = "\
Examples:
  virtengine tx hpc resume-node node-hpc1-compute-042 --from owner --yes")]
    ResumeNode(NodeRef),
    /// Record what silence has made of nodes.
    #[command(after_help = "\
Examples:
  virtengine tx hpc sweep --from owner --yes
  virtengine tx hpc sweep --cluster-id hpc-cluster-1 --limit 64 --from owner --yes")]
    Sweep {
        /// Only this cluster [default: all, in turn].
        #[arg(long, value_name = "ID")]
        cluster_id: Option<ClusterId>,
        /// Most pages of 64 nodes to visit, 1 to 256 [default: 16].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
        limit: Option<u32>,
    },
    /// Remove nodes that have been deregistered for longer than `retention`.
    #[command(after_help = "\
Examples:
  virtengine tx hpc prune --from owner --yes")]
    Prune {
        /// Most nodes to remove, 1 to 256 [default: 32].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
        limit: Option<u32>,
    },
    /// Record a digest with the block's height and time.
    #[command(after_help = "\
Examples:
  virtengine tx hpc anchor hpc-cluster-1 audit-head \
9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 --from owner")]
    Anchor {
        /// Which cluster.
        cluster_id: ClusterId,
        /// What it is of: 1 to 32 of a-z 0-9 _ -
        kind: String,
        /// Lower-case hex SHA-256.
        #[arg(value_parser = parse::digest)]
        digest: String,
    },
    /// Change parameters.
    #[command(after_help = "\
Examples:
  virtengine tx hpc update-params --heartbeat-interval 20 --heartbeat-timeout 90 --from admin
  virtengine tx hpc update-params --cluster-deposit 1000000stake --from admin --yes")]
    UpdateParams(Box<ParamsArgs>),
    /// First step of handing the administration over.
    #[command(after_help = "\
Examples:
  virtengine tx hpc propose-admin wasm1u93r284ttjjdw0e2z4fn4q9ychw529uzv0ys2t --from admin
  virtengine tx hpc propose-admin --withdraw --from admin")]
    ProposeAdmin {
        /// Address of the new admin.
        #[arg(required_unless_present = "withdraw")]
        admin: Option<String>,
        /// Take the proposal back.
        #[arg(long, conflicts_with = "admin")]
        withdraw: bool,
    },
    /// Second step, by the proposed admin.
    #[command(after_help = "\
Examples:
  virtengine tx hpc accept-admin --from new-admin")]
    AcceptAdmin,
    /// Stop registrations of nodes; reports go on.
    #[command(after_help = "\
Examples:
  virtengine tx hpc pause-registrations --from admin")]
    PauseRegistrations,
    /// Allow registrations again.
    #[command(after_help = "\
Examples:
  virtengine tx hpc unpause-registrations --from admin")]
    UnpauseRegistrations,
}
