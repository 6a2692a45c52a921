//! All that knows about Cosmos: CometBFT JSON-RPC, transactions, keys, settlement, the typed client of the registry.

pub mod code;
pub mod gas;
pub mod hash;
pub mod http;
pub mod keys;
pub mod msg;
pub mod proof;
pub mod query;
pub mod registry;
pub mod rpc;
pub mod send;
pub mod settle;
pub mod tx;
