//! Transactions: decoding, the checks of the ante handler, messages, events.

mod ante;
mod decode;
mod error;
mod event;
mod message;
mod run;
mod wasm;

pub(crate) use ante::Mode;
pub(crate) use decode::{DecodedTx, hash};
pub(crate) use error::TxError;
pub(crate) use event::Event;
pub(crate) use run::{BlockContext, Rules, TxResult, check, deliver, simulate};
