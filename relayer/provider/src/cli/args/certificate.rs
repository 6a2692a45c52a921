use clap::Subcommand;
use hpc_schema::id::{ClusterId, NodeId};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum CertificateCommand {
    /// Lists certificates, newest first.
    List {
        /// Only of this node.
        #[arg(long)]
        node_id: Option<NodeId>,
    },
    /// Revokes certificates within a second, on open connections too. The node gets a new one with its agent key; to keep
    /// it out, disable it.
    Revoke {
        /// The one with this SHA-256.
        #[arg(long, value_name = "SHA-256", conflicts_with_all = ["serial", "node_id"])]
        fingerprint: Option<String>,
        /// The one of this serial number, as `openssl x509 -serial` has it; two CAs may have given the same.
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
