mod admin;
mod audit;
mod certificate;
mod config;
mod heartbeat;
mod init;
mod keys;
mod node;
mod order;
mod slot;
mod task;
mod token;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use hpc_schema::id::{ClusterId, NodeId};

pub(super) use super::desk::Elsewhere;
use super::output::Format;
pub(super) use admin::AdminTokenCommand;
pub(super) use audit::AuditCommand;
pub(super) use certificate::CertificateCommand;
pub(super) use config::ConfigCommand;
pub(super) use heartbeat::HeartbeatCommand;
pub(super) use init::InitArgs;
pub(super) use keys::KeysCommand;
pub(super) use node::NodeCommand;
pub(super) use order::{OrderCommand, SendArgs};
pub(super) use slot::{SlotCommand, WhichSlotArgs};
pub(super) use task::{SubmitArgs, TaskCommand, WhichTask};
pub(super) use token::{TokenCommand, WhoWaits};

/// The site's gateway and relayer: admits heartbeats of nodes, stores them durably, settles them on chain.
#[derive(Debug, Parser)]
#[command(
    name = "virtengine-provider",
    version,
    after_help = "Examples:\n  \
        virtengine-provider init --hostname gateway.example.com\n  \
        virtengine-provider node-token create --cluster-id hpc-cluster-1 --node-id node-hpc1-compute-042 --pubkey \"$(cat agent.pub)\"\n  \
        virtengine-provider run\n  \
        virtengine-provider node list --output json\n  \
        virtengine-provider node watch --admin https://gateway.example.com:9465 --credential-file ~/.provider-token --ca-file ca.crt\n\n\
        Exit codes: 0 done, 1 refused, 2 wrong usage, 69 the chain, an admin listener, no daemon, a port or a lock, 74 disk, \
        78 configuration, keys, passphrases or --home (also a wrong chain or contract); in full: docs/provider.md."
)]
pub(super) struct Args {
    /// The daemon's directory.
    #[arg(
        long,
        global = true,
        env = "VIRTENGINE_PROVIDER_HOME",
        default_value = "/var/lib/virtengine/provider"
    )]
    pub(super) home: PathBuf,
    /// Format of the answer.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub(super) output: Format,
    #[command(flatten)]
    pub(super) elsewhere: Elsewhere,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Creates CA, keys and configuration in an empty directory.
    Init(InitArgs),
    /// Runs the daemon until SIGTERM or Ctrl-C.
    Run,
    /// The configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Registration tokens for nodes; works while the daemon runs.
    #[command(subcommand)]
    NodeToken(TokenCommand),
    /// Nodes as the gateway knows them; works while the daemon runs.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Orders to nodes and what became of them; works while the daemon runs.
    #[command(subcommand, name = "command")]
    Order(OrderCommand),
    /// Typed tasks for nodes, and how they ended; works while the daemon runs.
    #[command(subcommand)]
    Task(TaskCommand),
    /// Slots of nodes that are let as slices; works while the daemon runs.
    #[command(subcommand)]
    Slot(SlotCommand),
    /// Heartbeats and what proves them; works while the daemon runs.
    #[command(subcommand)]
    Heartbeat(HeartbeatCommand),
    /// What is wrong, as receivers of alerts are told; works while the daemon runs.
    #[command(subcommand)]
    Alert(super::alert::AlertCommand),
    /// Certificates of nodes; works while the daemon runs.
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Keys of this directory.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Credentials of the admin listener; works while the daemon runs.
    #[command(subcommand)]
    AdminToken(AdminTokenCommand),
    /// Who did what: the log of privileged acts.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Backups of this directory; works while the daemon runs.
    #[command(subcommand)]
    Backup(super::backup::BackupCommand),
    /// Lets the daemon read its certificate, the trusted CAs and config.yaml anew, as SIGHUP does; no connection is
    /// dropped.
    Reload,
    /// Whether the daemon runs and is ready, and what waits.
    Status,
    /// Prints the OpenAPI document of everything that the daemon answers.
    Openapi,
    /// Signs with a key in an HSM for the daemon that has started it.
    #[command(name = hpc_chain::keys::HSM_COMMAND, hide = true)]
    SignPkcs11,
    /// Prints the completion script of a shell.
    #[command(
        after_help = "Example:\n  virtengine-provider completions bash > /etc/bash_completion.d/virtengine-provider"
    )]
    Completions {
        /// Which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Which node is meant.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Whose {
    /// The node.
    pub(in crate::cli) node_id: NodeId,
    /// Its cluster, if several have a node of this id.
    #[arg(long)]
    pub(in crate::cli) cluster_id: Option<ClusterId>,
}
