//! `proof`: needs no node and no profile.

use hpc_chain::proof::{Found, Proof, ProofError, Trust, verify};

use crate::args::ProofCommand;
use crate::context::Context;
use crate::error::{Exit, Failure};
use crate::file;
use crate::output::{Lines, Text};

/// Largest file: a heartbeat, a transaction, ten thousand validators.
const MOST: u64 = 16 << 20;

/// Runs the command.
pub(crate) fn run(context: &Context, command: &ProofCommand) -> Result<(), Failure> {
    let ProofCommand::Verify {
        file,
        validators_hash,
        agent_key,
        chain_id,
        contract,
    } = command;
    let bytes = file::read(file, MOST)?;
    let proof: Proof = serde_json::from_slice(&bytes).map_err(|e| {
        let message = format!("{}: is no heartbeat's proof: {e}", file.display());
        Failure::new(Exit::Failed, "proof_unreadable", message)
    })?;
    let trust = Trust {
        validators_hash: validators_hash.clone(),
        agent_key: *agent_key,
        chain_id: chain_id.clone(),
        contract: contract.clone(),
    };
    let found = verify(&proof, &trust).map_err(|e| refused(&e))?;
    context.printer.print(&found)
}

fn refused(e: &ProofError) -> Failure {
    let (exit, code) = match e {
        ProofError::Format(..) => (Exit::Failed, "proof_unreadable"),
        ProofError::NotTrusted { .. } => (Exit::Refused, "proof_not_trusted"),
        ProofError::Agent(_) | ProofError::Part(..) => (Exit::Refused, "proof_invalid"),
    };
    Failure::new(exit, code, format!("the proof does not hold: {e}"))
}

impl Text for Found {
    fn text(&self) -> String {
        let mut lines = Lines::new();
        lines
            .line("chain", &self.chain_id)
            .line("contract", &self.contract)
            .line("cluster", &self.cluster_id)
            .line("node", &self.node_id)
            .line("epoch", self.epoch)
            .line("sequence", self.sequence)
            .line("agent_key", &self.agent_key)
            .line("payload_sha256", &self.payload_sha256)
            .line("tx", &self.tx)
            .line("height", self.height)
            .line("block_time", &self.block_time)
            .line("block_hash", &self.block_hash)
            .line("validators_hash", &self.validators_hash)
            .line(
                "signed_power",
                format!("{} of {}", self.signed_power, self.total_power),
            );
        for what in &self.proven {
            lines.line("proven", what);
        }
        for what in &self.not_proven {
            lines.line("not_proven", what);
        }
        lines.finish()
    }
}
