//! Admission: whether a heartbeat is taken, decided by `hpc-schema`'s verifier and the gateway's record.

mod judge;
mod limit;
mod nonce;
pub mod signatures;

pub use judge::{Judge, Verdict};
pub use limit::{Limiter, network};
pub use nonce::Nonces;
pub use signatures::Verifiers;
