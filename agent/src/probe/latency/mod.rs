//! Round trips between agents: a small authenticated exchange over UDP (docs/protocol.md, section 2.6).
//!
//! A session is agreed once per measurement with both agents' Ed25519 keys and X25519; the pings that are timed then
//! cost one HMAC each, so that cryptography stays out of the figure. Nobody on the way can answer for a node, and no
//! answer is longer than its question.

mod exchange;
mod packet;
mod prober;
mod responder;
mod serve;

pub use prober::{MOST_PEERS, Measured, Prober, average};
pub use responder::{Known, Reply, Responder, Welcome};
pub use serve::{bind, serve};

#[cfg(test)]
mod tests;
