//! Transactions: decoding, the checks of the ante handler, messages, events.

mod ante;
mod context;
mod decode;
mod error;
mod event;
mod message;
mod proto;
mod run;
mod scope;
mod wasm;

pub(crate) use ante::Mode;
pub(crate) use context::{BlockContext, Rules};
pub(crate) use decode::{DecodedTx, hash};
pub(crate) use error::TxError;
pub(crate) use event::Event;
pub(crate) use run::{TxResult, check, deliver, simulate};
