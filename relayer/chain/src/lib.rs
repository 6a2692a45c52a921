//! All that knows about Cosmos: CometBFT JSON-RPC, transactions, keys, settlement, the typed client of the registry.

pub mod code;
pub mod hash;
pub mod settle;
