//! Randomness from the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes.
///
/// # Errors
/// The kernel's, practically never.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut out = [0u8; N];
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|r| !r.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(n) => filled = filled.saturating_add(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(out)
}

/// A number from 0 to `limit`, both included; 0 if the kernel gives nothing (used for jitter only).
#[must_use]
pub fn up_to(limit: u64) -> u64 {
    let Ok(bytes) = bytes::<8>() else { return 0 };
    match limit.checked_add(1) {
        // The bias of the remainder is below 2⁻³² for every limit in use (milliseconds).
        Some(n) => u64::from_le_bytes(bytes).checked_rem(n).unwrap_or(0),
        None => u64::from_le_bytes(bytes),
    }
}
