use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use hpc_schema::command::CommandType;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;

use crate::config::Span;
use crate::enrol::Network;

/// The site's gateway and relayer: admits heartbeats of nodes, stores them durably, settles them on chain.
#[derive(Debug, Parser)]
#[command(
    name = "virtengine-provider",
    version,
    after_help = "Examples:\n  \
        virtengine-provider init --hostname gateway.example.com\n  \
        virtengine-provider node-token create --cluster-id hpc-cluster-1 --node-id node-hpc1-compute-042 --pubkey \"$(cat agent.pub)\"\n  \
        virtengine-provider run\n\n\
        Exit codes: 78 configuration (also a wrong chain or contract), 74 disk, 69 port or lock taken, 1 anything else."
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
    /// Certificates of nodes; works while the daemon runs.
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Keys of this directory.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Backups of this directory; works while the daemon runs.
    #[command(subcommand)]
    Backup(super::backup::BackupCommand),
    /// Lets the daemon read its certificate and the trusted CAs anew, as SIGHUP does; no connection is dropped.
    Reload,
    /// Whether the daemon runs and is ready, and what waits.
    Status(Out),
}

/// How lists and records are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Out {
    /// Format of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    virtengine-provider init --home /var/lib/virtengine/provider --hostname gateway.example.com --address 203.0.113.7\n  \
    virtengine-provider init --chain-id hpc-1 --contract wasm1… --rpc http://127.0.0.1:26657 --import mnemonic.txt")]
pub(super) struct InitArgs {
    /// Host name in the gateway's certificate; may be repeated [default: localhost].
    #[arg(long)]
    pub(super) hostname: Vec<String>,
    /// IP address in the gateway's certificate; may be repeated [default: 127.0.0.1].
    #[arg(long)]
    pub(super) address: Vec<IpAddr>,
    /// Chain id.
    #[arg(long)]
    pub(super) chain_id: Option<String>,
    /// Address of the registry contract.
    #[arg(long)]
    pub(super) contract: Option<String>,
    /// RPC endpoint; may be repeated.
    #[arg(long)]
    pub(super) rpc: Vec<String>,
    /// What a unit of gas is paid with, such as 0.025stake.
    #[arg(long)]
    pub(super) gas_price: Option<String>,
    /// File with the mnemonic of the paying key, instead of a new one.
    #[arg(long, value_name = "FILE")]
    pub(super) import: Option<PathBuf>,
    /// File with the mnemonic of the operator key, instead of a new one.
    #[arg(long, value_name = "FILE")]
    pub(super) import_operator: Option<PathBuf>,
    /// `file` seals keys with the passphrase in the file that VIRTENGINE_KEYRING_PASSPHRASE_FILE names;
    /// `test` keeps them in the clear, mode 0600 [default: file if that variable is set].
    #[arg(long)]
    pub(super) keyring_backend: Option<hpc_chain::keys::Backend>,
    /// Bech32 prefix of the addresses shown.
    #[arg(long, default_value = "wasm")]
    pub(super) prefix: String,
    #[command(flatten)]
    pub(super) out: Out,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Checks config.yaml and the environment; exit code 78 if something is wrong.
    Check,
    /// Shows what counts: file, environment and defaults together.
    Show(Out),
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Makes a token and prints it, and nothing else, on standard output; with --from-file one for each line of the
    /// file, as node_id,token.
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
        /// CSV file, a line each: node_id,pubkey or node_id,pubkey,cluster_id; all of them or none.
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
    JoinList(Out),
    /// Lists nodes that wait for approval.
    Waiting(Out),
    /// Lets a node that waits for approval register; compare its key with the node's agent.pub first.
    Approve {
        #[command(flatten)]
        whose: Whose,
    },
    /// Lists tokens; never the tokens themselves.
    List(Out),
    /// Takes a token back that has not been used, or a join token with all its uses that are not done.
    Revoke {
        /// Id of the token, from a list.
        jti: String,
    },
}

/// Which node is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Whose {
    /// The node.
    pub(super) node_id: NodeId,
    /// Its cluster, if several have a node of this id.
    #[arg(long)]
    pub(super) cluster_id: Option<ClusterId>,
}

#[derive(Debug, Subcommand)]
pub(super) enum NodeCommand {
    /// Lists nodes: last received, last on chain, last refusal with its remedy.
    List(Out),
    /// Shows one node, its newest orders, and how its newest reports ended.
    Show {
        #[command(flatten)]
        whose: Whose,
        /// How many of its ended reports are shown, the newest.
        #[arg(long, default_value_t = 20)]
        reports: u32,
        #[command(flatten)]
        out: Out,
    },
    /// Lists nodes again and again until Ctrl-C.
    Watch {
        /// Only this node.
        node_id: Option<NodeId>,
        /// How often.
        #[arg(long, default_value = "2s")]
        every: Span,
        #[command(flatten)]
        out: Out,
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
    /// Takes a node's traffic again.
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

#[derive(Debug, Subcommand)]
pub(super) enum OrderCommand {
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
        limit: usize,
        #[command(flatten)]
        out: Out,
    },
    /// Shows one order.
    Show {
        /// Its id.
        command_id: String,
        #[command(flatten)]
        out: Out,
    },
    /// Takes back an order that the node has not acknowledged.
    Cancel {
        /// Its id.
        command_id: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    #[command(flatten)]
    pub(super) whose: Whose,
    /// shutdown, update_agent or run_diagnostic; drain and resume are `node drain` and `node resume`.
    #[arg(long = "type")]
    pub(super) kind: CommandType,
    /// JSON object; see docs/protocol.md, section 2.5.
    #[arg(long, default_value = "{}")]
    pub(super) parameters: String,
    /// Not to be begun later than this, up to 7 days from now.
    #[arg(long, default_value = "1h", value_name = "SPAN")]
    pub(super) deadline: Span,
}

#[derive(Debug, Subcommand)]
pub(super) enum CertificateCommand {
    /// Lists certificates, newest first.
    List {
        /// Only of this node.
        #[arg(long)]
        node_id: Option<NodeId>,
        #[command(flatten)]
        out: Out,
    },
    /// Revokes certificates within a second, on open connections too. The node gets a new one with its agent key; to keep
    /// it out, disable it.
    Revoke {
        /// The one of this serial number.
        #[arg(long, conflicts_with = "node_id")]
        serial: Option<String>,
        /// All of this node.
        #[arg(long)]
        node_id: Option<NodeId>,
        /// Its cluster, if several have a node of this id.
        #[arg(long)]
        cluster_id: Option<ClusterId>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Lists chain keys and their addresses.
    List(Out),
    /// Shows a chain key: operator or relayer.
    Show {
        /// Name of the key.
        name: String,
        /// Only the address.
        #[arg(long)]
        address: bool,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
        #[command(flatten)]
        out: Out,
    },
    /// Makes another chain key, for `keys.extra_relayers`, beside the others and sealed like them.
    Add {
        /// Name of the key.
        name: String,
        /// File with a mnemonic to take the key from, mode 0600.
        #[arg(long)]
        import: Option<std::path::PathBuf>,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
        #[command(flatten)]
        out: Out,
    },
    /// Prints the address of a chain key.
    Address {
        /// Name of the key.
        name: String,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Prints the public key that signs a cluster's commands and tasks, for its record on chain; makes the
    /// key if there is none.
    Task {
        /// The cluster.
        #[arg(long)]
        cluster_id: ClusterId,
    },
}
