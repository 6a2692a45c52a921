//! One file that holds all of a daemon's directory: a consistent copy of the store, made while it runs, and its keys,
//! certificates and configuration. Under a passphrase, for it can do whatever the daemon can.

mod archive;
mod aside;
mod create;
mod restore;
mod restored;
mod room;

pub use archive::{BackupError, Head};
pub use aside::sweep;
pub use create::create;
pub use restore::restore;
pub use restored::tell;
