//! `proof`: needs no node and no profile.

use hpc_chain::proof::{Found, Proof, ProofError, Trust, verify};

use crate::args::ProofCommand;
use crate::context::Context;
use crate::error::{Exit, Failure};
use crate::file;
use crate::output::{Lines, Text};

/// Largest file: a heartbeat, a transaction, ten thousand validators.
const MOST: u64 = 16 << 20;

const AS_WRITTEN: &str = "give the file as virtengine-provider heartbeat prove has written it";

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
        Failure::new(Exit::Failed, "proof_unreadable", message).remedy(AS_WRITTEN)
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
    let (exit, code, remedy) = match e {
        ProofError::Format(..) => (
            Exit::Failed,
            "proof_unreadable",
            "give a file of virtengine-provider heartbeat prove to a program that checks its version",
        ),
        ProofError::NotTrusted { .. } => (
            Exit::Refused,
            "proof_not_trusted",
            "look up again what is expected (--chain-id, --contract, --agent-key, --validators-hash); if it is right, the \
             proof is of something else: do not rely on it",
        ),
        ProofError::Agent(_) | ProofError::Part(..) => (
            Exit::Refused,
            "proof_invalid",
            "do not rely on it; have it made again: virtengine-provider heartbeat prove, and give that file unchanged",
        ),
    };
    Failure::new(exit, code, format!("the proof does not hold: {e}")).remedy(remedy)
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

#[cfg(test)]
mod tests {
    use hpc_schema::code::Code;
    use hpc_schema::refusal::Refusal;

    use super::*;

    #[test]
    fn whatever_is_wrong_with_a_proof_has_its_code_and_a_remedy() {
        let not_trusted = ProofError::NotTrusted {
            what: "chain_id",
            found: "a".into(),
            wanted: "b".into(),
        };
        let signature = Refusal::field(Code::InvalidField, "auth", "is not the agent's");
        for (error, code, exit, part) in [
            (
                ProofError::Format("x".into(), 9),
                "proof_unreadable",
                1,
                "heartbeat prove",
            ),
            (not_trusted, "proof_not_trusted", 4, "--chain-id"),
            (
                ProofError::Agent(signature),
                "proof_invalid",
                4,
                "heartbeat prove",
            ),
            (
                ProofError::Part("tx", "is no base64".into()),
                "proof_invalid",
                4,
                "heartbeat prove",
            ),
        ] {
            let failure = refused(&error);
            assert_eq!((failure.code.as_ref(), failure.exit.number()), (code, exit));
            let remedy = failure.remedy.unwrap();
            assert!(remedy.contains(part), "{code}: {remedy}");
        }
    }
}
