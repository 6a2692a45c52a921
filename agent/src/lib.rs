//! The node agent: measures this machine, signs what it measured, reports it to the provider's gateway, and never
//! loses touch. One thread, a few megabytes, no knowledge of the chain.

pub mod files;
pub mod key;
pub mod probe;
pub mod random;
pub mod sequence;
