//! Contracts linked into this binary, and the host that runs them.

mod api;
mod host;
mod native;
mod storage;

pub(crate) use host::{Failure, Host};
pub use native::{NativeContract, Typed};
