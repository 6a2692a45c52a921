//! `proof`.

use std::path::PathBuf;

use clap::Subcommand;
use hpc_schema::key::AgentKey;

pub(super) const EXAMPLES: &str = "\
Examples:
  virtengine-provider heartbeat prove node-hpc1-compute-042 > heartbeat.json
  virtengine proof verify heartbeat.json";

#[derive(Debug, Subcommand)]
pub(crate) enum ProofCommand {
    /// Check a heartbeat's proof; asks nobody.
    #[command(after_help = "\
Examples:
  virtengine proof verify heartbeat.json
  virtengine proof verify heartbeat.json --validators-hash 5E1B… --agent-key 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= -o json

The hash of the validators stands in every header: `curl -s NODE/header?height=H | jq -r .result.header.validators_hash`")]
    Verify {
        /// The file that `virtengine-provider heartbeat prove` wrote.
        file: PathBuf,
        /// Hash of the validator set that you trust; without it the proof's own is taken and shown.
        #[arg(long, value_name = "HEX")]
        validators_hash: Option<String>,
        /// The agent's key that you trust, base64; without it the proof's own is taken and shown.
        #[arg(long, value_name = "KEY")]
        agent_key: Option<AgentKey>,
        /// The chain that it must be of.
        #[arg(long, value_name = "ID")]
        chain_id: Option<String>,
        /// The contract that it must be of.
        #[arg(long, value_name = "ADDRESS")]
        contract: Option<String>,
    },
}
