//! Admission: whether a heartbeat is taken, decided by `hpc-schema`'s verifier and the gateway's record.

mod judge;
mod limit;
mod nonce;
pub mod signatures;
mod verdict;
mod verifiers;

pub use judge::{Judge, Judged, Records, Ruling};
pub use limit::{Limiter, Own, network};
pub use nonce::Nonces;
pub use verdict::Verdict;
