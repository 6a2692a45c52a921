//! A thin CometBFT JSON-RPC client: the one port that every Cosmos node has.
//!
//! Every call has a deadline and a bound on the answer's size. int64 come as strings; hashes go out as base64. Nothing
//! here retries: [`Endpoints`] tries the next endpoint, the settlement machine asks again.

mod blocks;
mod client;
mod endpoints;
mod error;
mod evidence;
mod find;
mod follow;
mod health;
mod results;
mod silences;
mod trust;
mod types;
mod wire;

pub use blocks::{Blocks, NewBlock};
pub use client::{Client, ClientOptions};
pub use endpoints::{AsRpcError, Endpoints, Head, Prepared};
pub use error::RpcError;
pub(crate) use error::{causes, reason};
pub use follow::{Follower, Seen, SeenBlock};
pub(crate) use results::NoResults;
pub use silences::Unanswered;
pub use trust::{Trust, TrustError};
pub use types::{AbciAnswer, Attribute, Block, CheckAnswer, Event, ExecResult, Status, TxAnswer, TxPage};

#[cfg(test)]
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
