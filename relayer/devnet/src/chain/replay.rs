//! Proof that the state is what the blocks make of the genesis.

use super::block;
use super::header::{Previous, header};
use super::node::params;
use super::store::Store;
use crate::config::Config;
use crate::error::Error;
use crate::handle::lock;
use crate::kv::{Entry, Kv, Layer, Nothing};

/// What a verified chain consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Blocks replayed: heights 1 to this.
    pub height: u64,
    /// Transactions in them.
    pub txs: u64,
    /// Keys of the state.
    pub keys: u64,
}

/// Runs every block again from the genesis and compares results, hashes, index and the whole state with what
/// is stored in `config.home`. The chain must not be running.
///
/// # Errors
/// [`Error::Damaged`] names the first difference.
pub fn verify(config: &Config) -> Result<Verified, Error> {
    let _lock = config.home.as_deref().map(lock).transpose()?;
    let path = config.home.as_ref().map(|home| home.join("state.redb"));
    let store = Store::open(path.as_deref(), &config.genesis)?;
    let stored = store.snapshot()?;
    let params = params(config);
    let mut state = Layer::over(&Nothing);
    config.genesis.apply(&mut state)?;
    let mut previous = stored.previous(1)?;
    let mut txs = 0u64;
    for height in 1..=stored.tip.height {
        let wrong = |what: &str| Error::Damaged(format!("block {height}: {what}"));
        let expected = stored.block(height)?.ok_or_else(|| wrong("missing"))?;
        let context = params.context(height, expected.time_nanos, &previous.app_hash);
        let executed = block::execute(&context, &params.rules, &state, &expected.txs);
        if executed.results != expected.results {
            return Err(wrong("the results of its transactions differ from a replay"));
        }
        if executed.app_hash != expected.app_hash {
            return Err(wrong("the state hash differs from a replay"));
        }
        let hash = header(&params.chain_id, height, &expected, &previous)?.hash();
        if hash.as_bytes() != expected.hash {
            return Err(wrong("the header hash differs from a replay"));
        }
        for bytes in &expected.txs {
            // The same bytes may stand in several blocks if they failed before; the index has the last.
            let found = stored
                .tx(&crate::tx::hash(bytes))?
                .ok_or_else(|| wrong("a transaction is not indexed"))?;
            if found.height < height {
                return Err(wrong("a transaction is indexed at another height"));
            }
            txs = txs.saturating_add(1);
        }
        state.apply(executed.writes);
        previous = Previous::of(&expected);
    }
    let keys = compare(&state, &stored.state)?;
    stored.sound()?;
    Ok(Verified {
        height: stored.tip.height,
        txs,
        keys,
    })
}

/// Compares two states entry by entry and counts them.
fn compare(replayed: &dyn Kv, stored: &dyn Kv) -> Result<u64, Error> {
    let mut stored = stored.range(&[], None, false);
    let mut replayed = replayed.range(&[], None, false);
    let mut keys = 0u64;
    loop {
        let pair: (Option<Entry>, Option<Entry>) = (replayed.next(), stored.next());
        match pair {
            (None, None) => return Ok(keys),
            (a, b) if a == b => keys = keys.saturating_add(1),
            (a, b) => {
                let key = a.or(b).map(|(key, _)| hex::encode(key)).unwrap_or_default();
                return Err(Error::Damaged(format!(
                    "the state differs from a replay at key {key}"
                )));
            }
        }
    }
}
