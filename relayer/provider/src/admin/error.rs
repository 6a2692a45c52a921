use hpc_chain::hash::TxHash;
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;

use crate::clock::NoRandomness;
use crate::store::StoreError;

/// Why something was not shown or done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// It cannot be, for the reason that the refusal names.
    #[error("{0}")]
    Refused(Refusal),
    /// What is named is not there.
    #[error("{0}")]
    Missing(Refusal),
    /// The store fails.
    #[error(transparent)]
    Store(StoreError),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The contract refuses it.
    #[error("the contract refuses it: {0}")]
    OnChain(Refusal),
    /// The chain does not do it.
    #[error("{0}")]
    Chain(String),
    /// It was sent, and whether the chain does it is not known.
    #[error("{what}")]
    Unknown {
        /// What is known, and what to do.
        what: String,
        /// The transaction.
        tx: TxHash,
        /// No later block will have it.
        last_block: u64,
    },
    /// The admin listener that was asked does not answer, or not now.
    #[error("{0}")]
    Unreachable(String),
    /// A key or file of the daemon's directory cannot be used.
    #[error("{0}")]
    Home(String),
}

impl From<StoreError> for AdminError {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::Cursor(what) => Self::field(Code::InvalidField, "after", what),
            other => Self::Store(other),
        }
    }
}

impl AdminError {
    /// A refusal of `field`.
    pub(crate) fn field(code: Code, field: &str, what: impl std::fmt::Display) -> Self {
        Self::Refused(Refusal::field(code, field, what))
    }

    /// There is no such thing; `remedy` says where to look.
    pub(super) fn missing(field: &str, what: impl std::fmt::Display) -> Self {
        Self::Missing(Refusal::field(Code::InvalidField, field, what))
    }
}
