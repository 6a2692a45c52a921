//! Admission: whether a heartbeat is taken, decided by `hpc-schema`'s verifier and the gateway's record.

mod judge;
mod limit;
mod nonce;
pub mod signatures;
mod verdict;

pub use judge::Judge;
pub use limit::{Limiter, Own, network};
pub use nonce::Nonces;
pub use signatures::Verifiers;
pub use verdict::Verdict;
