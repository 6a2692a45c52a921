//! The gateway under load: nodes with certificates, signed heartbeats, a client that keeps connections alive, and the
//! floor that no gateway can go below. `src/bin/bench-gateway.rs` runs it.

pub mod client;
pub mod drive;
pub mod floor;
pub mod heartbeats;
pub mod host;
pub mod known;
pub mod peer;
pub mod records;
pub mod table;
pub mod traffic;
pub mod world;
