//! What goes into the settlement machine and what comes out.

use serde::{Deserialize, Serialize};

use crate::code::Verdict;
use crate::hash::TxHash;

/// The driver's name for a batch (a row id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub u64);

/// An endpoint's place in the operator's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointId(pub u16);

/// Limits of the machine; times in milliseconds of the clock that is passed to [`super::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// No new height for so long: halted.
    pub halt_after_ms: u64,
    /// Nothing is signed or sent unless the newest block's time is this near to ours.
    pub max_block_age_ms: u64,
    /// How long a transaction may live: T = height + ceil(lifetime / block time).
    pub lifetime_ms: u64,
    /// … and at least so many blocks.
    pub min_lifetime_blocks: u64,
    /// The same bytes go again to each endpoint after so many of its blocks.
    pub rebroadcast_blocks: u64,
    /// After `expected < got` the account is read again after so many blocks.
    pub reread_blocks: u64,
    /// Block time until three intervals have been seen.
    pub assumed_block_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            halt_after_ms: 30_000,
            max_block_age_ms: 60_000,
            lifetime_ms: 90_000,
            min_lifetime_blocks: 3,
            rebroadcast_blocks: 3,
            reread_blocks: 5,
            assumed_block_ms: 5_000,
        }
    }
}

/// What the driver tells the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The process has started from a stored state.
    Restarted,
    /// A batch waits to be sent. Its content may still change until [`Action::Sign`] asks for it.
    Submit {
        /// Which.
        batch: BatchId,
    },
    /// The answer to [`Action::Sign`].
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
    /// The blocks `from..=to` were read for the hash. Heights that an endpoint has pruned count as read.
    Scanned {
        /// What was looked for.
        hash: TxHash,
        /// First height.
        from: u64,
        /// Last height.
        to: u64,
        /// Every inclusion found; also a refused one counts.
        inclusions: Vec<Inclusion>,
    },
    /// The batch's members are settled durably.
    Settled {
        /// Which.
        batch: BatchId,
    },
}

/// An endpoint's answer to a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckTx {
    /// It answered.
    Answered {
        /// Its meaning.
        verdict: Verdict,
        /// ABCI code; 0 also where a JSON-RPC error came.
        code: u32,
        /// ABCI codespace.
        codespace: String,
        /// Its text, for people.
        log: String,
    },
    /// No answer, or a broken one: the bytes may have arrived.
    Unclear,
}

/// A transaction in a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inclusion {
    /// Its hash.
    pub hash: TxHash,
    /// The block.
    pub height: u64,
    /// 0: it took effect.
    pub code: u32,
    /// ABCI codespace; empty for code 0.
    pub codespace: String,
    /// The result's text, cut by the driver to what is worth keeping.
    pub log: String,
}

/// What [`Action::Sign`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignRequest {
    /// The batch to plan finally and to sign.
    pub batch: BatchId,
    /// Account number for the sign bytes.
    #[serde(with = "super::state::u64_text")]
    pub account_number: u64,
    /// Sequence to use.
    #[serde(with = "super::state::u64_text")]
    pub sequence: u64,
    /// T: the last height at which it may execute.
    pub timeout_height: u64,
}

/// A signed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTx {
    /// What was asked for.
    pub request: SignRequest,
    /// The bytes to broadcast, the same every time.
    pub bytes: Vec<u8>,
}

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Store the state durably before the next action.
    Persist,
    /// Plan the batch finally, sign it, answer [`Input::Signed`] or [`Input::Withdrawn`].
    Sign(SignRequest),
    /// Send the outstanding bytes to these endpoints; answer one [`Input::CheckTx`] each.
    Broadcast {
        /// Which bytes.
        hash: TxHash,
        /// To whom.
        endpoints: Vec<EndpointId>,
    },
    /// Look the hash up; answer [`Input::Found`] or [`Input::NotFound`].
    QueryTx {
        /// Which.
        hash: TxHash,
    },
    /// Read the account, best from the endpoint with the highest block; answer [`Input::Account`].
    QueryAccount,
    /// Read the blocks for the hash; answer [`Input::Scanned`].
    ScanBlocks {
        /// What to look for.
        hash: TxHash,
        /// First height.
        from: u64,
        /// Last height.
        to: u64,
    },
    /// The sequence was consumed and our hash is in no block: read the nodes' sequences on the contract, close what is
    /// there, queue the rest again, then [`Input::Settled`].
    QueryNodeSequences {
        /// Which batch.
        batch: BatchId,
    },
    /// The transaction has ended: settle the batch's members, then [`Input::Settled`].
    Finished {
        /// Which batch.
        batch: BatchId,
        /// How it ended.
        end: End,
    },
    /// [`Input::Submit`] while another batch is under way: ignored. Ask [`super::State::is_idle`] first.
    Busy {
        /// The batch that was not taken.
        batch: BatchId,
    },
    /// Tell the operator; also visible as [`super::State::condition`].
    Alarm(Alarm),
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum End {
    /// It took effect in this block; items have their own outcomes in its events and data.
    Included(Inclusion),
    /// It is in a block and had no effect; it never will.
    Failed(Inclusion),
    /// It is in no block and never will be; its sequence is free again.
    Expired {
        /// The height of the account answer that proves it.
        height: u64,
    },
    /// Its sequence is used and it was not found.
    Consumed {
        /// The height of the account answer that showed it.
        height: u64,
    },
}

/// What an operator should hear of. Raised once when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alarm {
    /// No new height for [`Config::halt_after_ms`].
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

/// What the machine knows of the chain's liveness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// No block seen yet.
    Starting,
    /// Heights grow and block time agrees with ours.
    Live,
    /// Heights grow, block time is off; nothing is sent.
    CatchingUp,
    /// No new height; nothing is sent, nothing expires.
    Halted,
}
