use hpc_schema::refusal::Refusal;

use super::{FORMAT, VERSION};

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Not a file of this kind and version.
    #[error("format: is {0:?}, version {1}; this program checks {FORMAT}, version {VERSION}")]
    Format(String, u32),
    /// The agent did not sign this.
    #[error("heartbeat: {0}")]
    Agent(Refusal),
    /// A part is unreadable or does not fit the others.
    #[error("{0}: {1}")]
    Part(&'static str, String),
    /// What was expected from elsewhere is not what the proof says.
    #[error("{what}: the proof has {found}, expected is {wanted}")]
    NotTrusted {
        /// What.
        what: &'static str,
        /// In the proof.
        found: String,
        /// Expected.
        wanted: String,
    },
}
