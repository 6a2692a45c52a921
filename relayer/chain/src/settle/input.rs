//! What goes into the settlement machine.

use super::types::{BatchId, CheckTx, EndpointId, Inclusion, SignedTx};
use crate::hash::TxHash;

/// What the driver tells the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The process has started from a stored state.
    Restarted,
    /// A batch waits to be sent. Its content may still change until [`super::Action::Sign`] asks for it.
    Submit {
        /// Which.
        batch: BatchId,
    },
    /// The answer to [`super::Action::Sign`].
    Signed(SignedTx),
    /// The batch could not be signed, or nothing is left in it. Nothing was sent.
    Withdrawn {
        /// Which.
        batch: BatchId,
    },
    /// A block of an endpoint.
    Head {
        /// Whose.
        endpoint: EndpointId,
        /// Its height.
        height: u64,
        /// Its header's time, UNIX milliseconds.
        block_time_ms: u64,
    },
    /// An endpoint stopped answering; nothing is sent to it until it shows a head again.
    EndpointLost {
        /// Which.
        endpoint: EndpointId,
    },
    /// An account answer with the height at which it was read, as the answer itself states it.
    Account {
        /// The answer's own height.
        height: u64,
        /// The account's number; any u64.
        account_number: u64,
        /// The next sequence.
        sequence: u64,
    },
    /// The account does not exist at this height.
    AccountUnknown {
        /// The answer's own height.
        height: u64,
    },
    /// What an endpoint said to the broadcast of `hash`.
    CheckTx {
        /// Who.
        endpoint: EndpointId,
        /// Of what.
        hash: TxHash,
        /// Its answer.
        answer: CheckTx,
    },
    /// The transaction was found in a block by its hash.
    Found(Inclusion),
    /// An endpoint does not know the hash. Proves nothing; counted by drivers only.
    NotFound {
        /// Of what.
        hash: TxHash,
    },
    /// The blocks `from..=to` were read for the hash, as far as they are kept.
    Scanned {
        /// What was looked for.
        hash: TxHash,
        /// First height.
        from: u64,
        /// Last height.
        to: u64,
        /// Every inclusion found; also a refused one counts.
        inclusions: Vec<Inclusion>,
        /// Heights of blocks that hold it and whose results no endpoint keeps (any more).
        gone: Vec<u64>,
        /// Blocks are pruned: whether they hold it is not known.
        unread: bool,
    },
    /// The batch's members are settled durably.
    Settled {
        /// Which.
        batch: BatchId,
    },
}
