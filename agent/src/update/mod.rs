//! Other versions of this program: fetched on order, proven to be a release, tried, kept or taken back.
//!
//! The installed program belongs to root and stays as it is. What is fetched lies in the state directory; at its start
//! the installed program hands over to the newest version there, after it has proven the signature again, so that
//! nobody who can write there can have anything run that the release key did not sign. A version counts as proven once
//! a gateway has accepted a heartbeat of it; one that is not proven within two starts is never started again.

mod fetch;
mod launch;
mod manifest;
mod stage;
mod store;

pub use fetch::fetch;
pub use launch::{Running, launch};
pub use manifest::{Manifest, ManifestError, Release, platform};
pub use stage::{Order, StageError, stage};
pub use store::{Failed, Pointer, Versions};
