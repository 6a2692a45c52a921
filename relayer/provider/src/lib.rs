//! The site's gateway and relayer: admits heartbeats of nodes, stores them durably, settles them on chain.

pub mod clock;
pub mod config;
pub mod enrol;
pub mod fault;
pub mod home;
pub mod identity;
pub mod spool;
pub mod store;
