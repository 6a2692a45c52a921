//! The wall clock and the random source, at the edge; everything inside takes time and chance as arguments.

use std::time::{SystemTime, UNIX_EPOCH};

use hpc_schema::time::UnixSeconds;
use rand::TryRngCore as _;

/// UNIX milliseconds; 0 before 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// UNIX seconds.
#[must_use]
pub fn now() -> UnixSeconds {
    UnixSeconds(now_ms() / 1000)
}

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness;

/// Random bytes of the operating system.
///
/// # Errors
/// If it has none.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| NoRandomness)?;
    Ok(bytes)
}
