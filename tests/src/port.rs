//! TCP ports that nothing listens on.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the range that the kernel gives to outgoing connections, so that none takes the port in the meantime.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A free port of the loopback address, another one at each call of this process.
///
/// # Errors
/// If 200 ports in a row are taken.
pub fn free() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run at the same time start at different places.
    let start = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(COUNT))?;
    for _ in 0..200 {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = FIRST + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free TCP port found on 127.0.0.1")
}
