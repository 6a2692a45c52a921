//! Where transactions run: the rules of the chain and the block they stand in.

use std::sync::Arc;

use super::TxError;
use crate::coin::GasPrice;
use crate::contract::NativeContract;
use crate::state::Numbering;

/// What transactions may be, for the life of the chain.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) min_gas_price: GasPrice,
    pub(crate) max_block_gas: Option<u64>,
    pub(crate) max_memo: usize,
    pub(crate) max_signatures: usize,
    pub(crate) numbering: Numbering,
}

/// The block that transactions run in.
#[derive(Clone, Copy)]
pub(crate) struct BlockContext<'a> {
    pub(crate) chain_id: &'a str,
    pub(crate) height: u64,
    pub(crate) time_nanos: u64,
    /// State hash before this block.
    pub(crate) app_hash: &'a [u8],
    /// Natively linked codes; code id is the index plus one.
    pub(crate) codes: &'a [Arc<dyn NativeContract>],
}

impl BlockContext<'_> {
    /// The code of an id.
    pub(crate) fn code(&self, code_id: u64) -> Result<&dyn NativeContract, TxError> {
        let index = code_id.checked_sub(1).and_then(|id| usize::try_from(id).ok());
        index
            .and_then(|index| self.codes.get(index))
            .map(AsRef::as_ref)
            .ok_or_else(|| TxError::no_such_code(format!("code id {code_id}")))
    }
}
