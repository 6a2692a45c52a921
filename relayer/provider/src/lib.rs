//! The site's gateway and relayer: admits heartbeats of nodes, stores them durably, settles them on chain.

pub mod admin;
pub mod admission;
pub mod alert;
pub mod attest;
pub mod audit;
pub mod backup;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod control;
pub mod daemon;
pub mod db;
pub mod enrol;
pub mod events;
#[cfg(test)]
mod fake_chain;
pub mod fault;
pub mod gateway;
mod gather;
pub mod home;
pub mod identity;
pub mod openapi;
pub mod ops;
pub mod page;
pub mod prove;
pub mod registry;
pub mod settle;
pub mod slot;
pub mod spool;
pub mod store;
pub mod task;
mod unread;
#[cfg(test)]
mod vectors;
