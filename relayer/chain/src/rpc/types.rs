//! Answers, as the rest of the crate uses them.

use crate::code::Verdict;
use crate::hash::TxHash;

/// `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Chain id.
    pub chain_id: String,
    /// CometBFT version.
    pub version: String,
    /// Newest block.
    pub height: u64,
    /// Its time, UNIX milliseconds.
    pub block_time_ms: u64,
    /// Lowest block still kept.
    pub earliest_height: u64,
    /// Whether the node still catches up with its peers.
    pub catching_up: bool,
    /// Whether transactions can be looked up by hash; so too where the node does not say.
    pub tx_index: bool,
}

/// `abci_query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbciAnswer {
    /// 0: answered.
    pub code: u32,
    /// Whose code it is.
    pub codespace: String,
    /// Text of a failure.
    pub log: String,
    /// The value, mostly protobuf.
    pub value: Vec<u8>,
    /// The height at which it holds; 0 where a failure does not say.
    pub height: u64,
}

/// `broadcast_tx_sync`: what the endpoint's mempool said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckAnswer {
    /// Its meaning. The only field to decide by.
    pub verdict: Verdict,
    /// ABCI code; 0 where a JSON-RPC error came.
    pub code: u32,
    /// ABCI codespace.
    pub codespace: String,
    /// Text.
    pub log: String,
}

/// An event attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Name.
    pub key: String,
    /// Value.
    pub value: String,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Type; `wasm-…` for those of a contract.
    pub ty: String,
    /// In order.
    pub attributes: Vec<Attribute>,
}

impl Event {
    /// The first value of this key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|a| a.key == key)
            .map(|a| a.value.as_str())
    }

    /// Keys and values, for parsers.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.attributes.iter().map(|a| (a.key.as_str(), a.value.as_str()))
    }
}

/// A transaction's result in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// 0: it took effect.
    pub code: u32,
    /// Whose code it is.
    pub codespace: String,
    /// Protobuf `TxMsgData`.
    pub data: Vec<u8>,
    /// Text of a failure.
    pub log: String,
    /// Limit.
    pub gas_wanted: u64,
    /// Used.
    pub gas_used: u64,
    /// In order.
    pub events: Vec<Event>,
}

/// `tx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxAnswer {
    /// Hash of `bytes`, computed here.
    pub hash: TxHash,
    /// Block.
    pub height: u64,
    /// Place in the block.
    pub index: u32,
    /// Result.
    pub result: ExecResult,
    /// The transaction.
    pub bytes: Vec<u8>,
}

/// A page of `tx_search`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxPage {
    /// This page.
    pub txs: Vec<TxAnswer>,
    /// How many there are in all.
    pub total: u64,
}

/// `block`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Chain id.
    pub chain_id: String,
    /// Height.
    pub height: u64,
    /// Header time, UNIX milliseconds.
    pub time_ms: u64,
    /// Transactions in order.
    pub txs: Vec<Vec<u8>>,
}
