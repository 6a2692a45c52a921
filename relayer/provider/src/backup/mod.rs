//! One file that holds all of a daemon's directory: a consistent copy of the store, made while it runs, and its keys,
//! certificates and configuration. Under a passphrase, for it can do whatever the daemon can.

mod archive;
mod create;
mod restore;

pub use archive::{BackupError, Head};
pub use create::create;
pub use restore::restore;
