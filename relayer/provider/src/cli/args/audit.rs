use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AuditCommand {
    /// Lists the newest privileged acts: who did what to what, and how it ended.
    List {
        /// How many.
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Prints the whole log, a JSON object a line.
    Export {
        /// Only rows after the one of this number.
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
    /// Follows the chain of digests from the first row on; finds any row that was altered, removed or moved.
    #[command(after_help = "Examples:\n  \
        virtengine-provider audit verify --chain\n  \
        virtengine-provider audit export > audit.jsonl; virtengine-provider audit verify --file audit.jsonl --chain")]
    Verify {
        /// An exported log instead of the store's.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Compares it with the anchors on chain too, against a log that was written anew as a whole.
        #[arg(long)]
        chain: bool,
        /// Address of a former operator key whose anchors count as well; may be repeated.
        #[arg(long, value_name = "ADDRESS", requires = "chain")]
        anchored_by: Vec<String>,
    },
}
