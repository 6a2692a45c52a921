//! Answers to queries, and the data that executions return. Names follow specification 000
//! "On-Chain Metadata Mapping". Every answer says at which block it holds.

mod anchor;
mod block;
mod cluster;
mod jobs;
mod node;
mod outcome;
mod relay;

pub use anchor::*;
pub use block::*;
pub use cluster::*;
pub use jobs::*;
pub use node::*;
pub use outcome::*;
pub use relay::*;
