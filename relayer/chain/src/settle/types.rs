//! The words of settlement that inputs, actions and the stored state share.

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
    /// No answer, a broken one, or one that says nothing of the bytes: they may have arrived.
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
    /// Gas that it used; 0: not known.
    #[serde(default)]
    pub gas_used: u64,
}

/// What [`super::Action::Sign`] asks for.
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
    /// Its sequence is used, and it was not found, or only in a block whose results nobody keeps, or in none that anybody still has.
    Consumed {
        /// The height of the account answer that showed it.
        height: u64,
        /// Another process's transaction used it: this one never ran.
        #[serde(default)]
        overtaken: bool,
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
