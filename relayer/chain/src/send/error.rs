//! Why a transaction did not take effect, or why that is not known.

use crate::code::Verdict;
use crate::gas::MoneyError;
use crate::hash::TxHash;
use crate::keys::KeyError;
use crate::query::QueryError;
use hpc_schema::code::Code;

/// Why a transaction did not take effect, or why that is not known.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SendError {
    /// A question failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The fee cannot be computed.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// The key failed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The endpoint serves another chain.
    #[error("the node's chain is {found}, not {wanted}; set --chain-id or --node")]
    WrongChain {
        /// Wanted.
        wanted: String,
        /// Found.
        found: String,
    },
    /// The chain does not know the account.
    #[error("account {address} does not exist on the chain; send it tokens first")]
    AccountUnknown {
        /// The signer.
        address: String,
    },
    /// No new blocks.
    #[error(
        "the chain makes no new blocks, or their time is far from this machine's clock (last height {height}); \
         nothing was sent"
    )]
    Halted {
        /// Last height.
        height: u64,
    },
    /// Refused before it came into a block; it will not take effect after `timeout_height`.
    #[error("{log} (codespace {codespace}, code {abci_code}); {remedy}")]
    Refused {
        /// Its meaning.
        verdict: Verdict,
        /// ABCI code.
        abci_code: u32,
        /// ABCI codespace.
        codespace: String,
        /// The chain's text.
        log: String,
        /// What to do.
        remedy: &'static str,
    },
    /// In a block, without effect.
    #[error("{message} (transaction {hash} in block {height}, codespace {codespace}, code {abci_code})")]
    Failed {
        /// The registry's stable code, if it gave one.
        code: Option<Code>,
        /// ABCI code.
        abci_code: u32,
        /// ABCI codespace.
        codespace: String,
        /// The contract's or the chain's text.
        message: String,
        /// Hash.
        hash: TxHash,
        /// Block.
        height: u64,
    },
    /// Never came into a block and never will.
    #[error("transaction {hash} was in no block up to its timeout height and never will be; send it again")]
    Expired {
        /// Hash.
        hash: TxHash,
    },
    /// Its sequence was used by another transaction of the same key.
    #[error(
        "another transaction of this key took the place of {hash}; use one process per key, then send it again"
    )]
    Superseded {
        /// Hash.
        hash: TxHash,
    },
    /// The wait is over without an end, or its sequence is used and no node has the blocks that may have it.
    #[error(
        "no end of transaction {hash} was found; it may have taken effect, or still do up to block {timeout_height}: \
         query it by its hash before sending it again"
    )]
    Unknown {
        /// Hash.
        hash: TxHash,
        /// T.
        timeout_height: u64,
    },
    /// It took effect; what it brought could not be read.
    #[error(
        "transaction {hash} took effect in block {height}, and its result could not be read ({reason}): query it by its \
         hash, and do not send it again"
    )]
    Unread {
        /// Hash.
        hash: TxHash,
        /// Block.
        height: u64,
        /// Why.
        reason: String,
    },
    /// It is in a block, and no node keeps what came of it.
    #[error(
        "transaction {hash} is in block {height}, and whether it took effect is not known: no node keeps what came of it, \
         neither an index of transactions nor results of blocks; look at what it was to change before sending it again"
    )]
    Untold {
        /// Hash.
        hash: TxHash,
        /// Block.
        height: u64,
    },
    /// The wait was over before anything was sent.
    #[error("the node gave no usable block and account within the wait; nothing was sent")]
    NothingSent,
}
