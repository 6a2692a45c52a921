//! What comes out of the settlement machine.

use super::types::{BatchId, End, EndpointId, SignRequest};
use crate::code::Verdict;
use crate::hash::TxHash;

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Store the state durably before the next action.
    Persist,
    /// Plan the batch finally, sign it, answer [`super::Input::Signed`] or [`super::Input::Withdrawn`].
    Sign(SignRequest),
    /// Send the outstanding bytes to these endpoints; answer one [`super::Input::CheckTx`] each.
    Broadcast {
        /// Which bytes.
        hash: TxHash,
        /// To whom.
        endpoints: Vec<EndpointId>,
    },
    /// Look the hash up; answer [`super::Input::Found`] or [`super::Input::NotFound`].
    QueryTx {
        /// Which.
        hash: TxHash,
    },
    /// Read the account, best from the endpoint with the highest block; answer [`super::Input::Account`].
    QueryAccount,
    /// Read the blocks for the hash; answer [`super::Input::Scanned`].
    ScanBlocks {
        /// What to look for.
        hash: TxHash,
        /// First height.
        from: u64,
        /// Last height.
        to: u64,
    },
    /// The sequence was consumed and our hash is in no block, or in one that is gone, or its results are: read the nodes'
    /// sequences on the contract, close what is there, queue the rest again, then [`super::Input::Settled`].
    QueryNodeSequences {
        /// Which batch.
        batch: BatchId,
        /// At this height the sequence was used: only an answer of at least this height tells what the batch did.
        height: u64,
        /// Another process's transaction used it.
        overtaken: bool,
    },
    /// The transaction has ended: settle the batch's members, then [`super::Input::Settled`].
    Finished {
        /// Which batch.
        batch: BatchId,
        /// How it ended.
        end: End,
    },
    /// [`super::Input::Submit`] while another batch is under way: ignored. Ask [`super::State::is_idle`] first.
    Busy {
        /// The batch that was not taken.
        batch: BatchId,
    },
    /// Tell the operator; also visible as [`super::State::condition`].
    Alarm(Alarm),
}

/// What an operator should hear of. Raised once when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarm {
    /// No new height for [`super::Config::halt_after_ms`].
    Halted {
        /// The last height seen; `None` if none was ever seen.
        height: Option<u64>,
    },
    /// Heights grow again.
    Resumed {
        /// The first new height.
        height: u64,
    },
    /// Heights grow, but the newest block's time is too far from ours to send.
    BlockTimeOff {
        /// Block time.
        block_time_ms: u64,
        /// Ours.
        now_ms: u64,
    },
    /// An endpoint refused the bytes; the transaction ends at its timeout height unless another takes it.
    Refused {
        /// Who.
        endpoint: EndpointId,
        /// Why.
        verdict: Verdict,
        /// ABCI code.
        code: u32,
        /// ABCI codespace.
        codespace: String,
        /// Text.
        log: String,
    },
    /// Somebody else uses this key.
    ForeignTransaction {
        /// The sequence that another transaction used.
        sequence: u64,
    },
    /// The chain does not know the signing account: it needs funds.
    AccountUnknown,
    /// The chain's sequence went down: another chain, or one that was restored.
    SequenceRegressed {
        /// What was known.
        known: u64,
        /// What the chain says.
        chain: u64,
    },
}
