//! Executing a block: a pure function of the state before it, its time and its transactions.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::contract::NativeContract;
use crate::kv::{Kv, Layer, Writes};
use crate::tx::{BlockContext, Rules, TxResult, deliver};

/// A block as it is stored, with the results of its transactions.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Block {
    /// Nanoseconds since the Unix epoch.
    #[prost(uint64, tag = "1")]
    pub(crate) time_nanos: u64,
    /// Hash of the state after this block.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) app_hash: Vec<u8>,
    /// Hash of this block's header.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) hash: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub(crate) txs: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) results: Vec<TxResult>,
}

/// The parameters that blocks and transactions are run with.
#[derive(Clone)]
pub(crate) struct ParamsView {
    pub(crate) chain_id: String,
    pub(crate) rules: Rules,
    pub(crate) codes: Vec<Arc<dyn NativeContract>>,
    pub(crate) block_bytes: usize,
}

impl ParamsView {
    /// The context of a block (or of a check or query "in" one).
    pub(crate) fn context<'a>(
        &'a self,
        height: u64,
        time_nanos: u64,
        app_hash: &'a [u8],
    ) -> BlockContext<'a> {
        BlockContext {
            chain_id: &self.chain_id,
            height,
            time_nanos,
            app_hash,
            codes: &self.codes,
        }
    }
}

/// What a block changes.
pub(crate) struct Executed {
    pub(crate) writes: Writes,
    pub(crate) results: Vec<TxResult>,
    pub(crate) app_hash: Vec<u8>,
}

/// Runs `txs` in order over `state`.
pub(crate) fn execute(
    context: &BlockContext<'_>,
    rules: &Rules,
    state: &dyn Kv,
    txs: &[Vec<u8>],
) -> Executed {
    let mut layer = Layer::over(state);
    let mut results = Vec::with_capacity(txs.len());
    for (index, bytes) in (0u32..).zip(txs) {
        results.push(deliver(context, rules, &mut layer, bytes, index));
    }
    let writes = layer.into_writes();
    let app_hash = state_hash(context.app_hash, context.height, &writes);
    Executed {
        writes,
        results,
        app_hash,
    }
}

/// Chains the hash of a block's changes to the hash before it, so that it moves with every block:
/// `SHA-256(before ‖ height u64 ‖ (key ‖ flag ‖ value)…)`, every part behind its length as u32.
pub(crate) fn state_hash(before: &[u8], height: u64, writes: &Writes) -> Vec<u8> {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(height.to_be_bytes());
    let mut part = |bytes: &[u8]| {
        hasher.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        hasher.update(bytes);
    };
    for (key, value) in writes {
        part(key);
        match value {
            Some(value) => {
                part(&[1]);
                part(value);
            }
            None => part(&[0]),
        }
    }
    hasher.finalize().to_vec()
}
