//! The local HTTP interface: what this node is, has and does, for people, monitoring and schedulers on the site.
//! Read-only, bounded in connections, bytes, time and rate; it costs nothing while nobody asks.

mod access;
mod answer;
mod board;
mod capacity;
mod listen;
mod metrics;
mod mount;
mod openapi;
mod route;
mod source;
mod text;

pub use board::{Board, View};
pub use listen::{Api, ApiError, bind};
pub use openapi::document as openapi;
