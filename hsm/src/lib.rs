//! Keys in an HSM, by PKCS#11: made there, never seen here. The HSM's library is foreign code that may crash, leak and wait
//! for a network; it runs in a process of its own ([`COMMAND`]), so that this costs a signature and nothing else.
//!
//! Whoever uses a key brings what differs: how the PIN is read, and whether a signature is good.

mod device;
mod error;
mod helper;
mod key;
mod session;

pub use device::{find, make};
pub use error::HsmError;
pub use helper::{COMMAND, serve};
pub use key::{Curve, Key, Options};
pub use session::{Check, Session};
