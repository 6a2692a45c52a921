//! What the messages of one transaction share while they run.

use std::collections::BTreeSet;

use super::context::{BlockContext, Rules};
use super::event::{self, Event};
use super::{DecodedTx, TxError};
use crate::address::{self, Address};
use crate::coin::Coins;
use crate::gas::{self, Meter};
use crate::kv::Layer;
use crate::state::{NumberSource, transfer};

/// The messages of one transaction while they run.
pub(super) struct MessageRun<'a> {
    pub(super) context: &'a BlockContext<'a>,
    pub(super) rules: &'a Rules,
    pub(super) tx: &'a DecodedTx,
    pub(super) index: u32,
    pub(super) meter: &'a Meter,
    /// Codes that this transaction has paid the loading of.
    pub(super) loaded: BTreeSet<u64>,
}

impl MessageRun<'_> {
    /// Moves coins and makes the receiver's account.
    pub(super) fn send(
        &self,
        state: &mut Layer<'_>,
        from: &Address,
        to: &Address,
        coins: &Coins,
        sender_event: bool,
    ) -> Result<Vec<Event>, TxError> {
        if *to == address::fee_collector() {
            return Err(TxError::unauthorized(format!(
                "{} is not allowed to receive funds",
                address::text(to)
            )));
        }
        transfer(state, from, to, coins, Some(self.numbers()))?;
        self.meter.add(gas::BANK_SEND);
        Ok(event::transfer(from, to, coins, sender_event))
    }

    /// How accounts that this transaction makes are numbered.
    pub(super) fn numbers(&self) -> NumberSource<'_> {
        NumberSource {
            numbering: self.rules.numbering,
            height: self.context.height,
            app_hash: self.context.app_hash,
            tx_index: u64::from(self.index),
        }
    }
}
