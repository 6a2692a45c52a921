//! The node agent: measures this machine, signs what it measured, reports it to the provider's gateway, and never
//! loses touch. A few megabytes, two threads, no knowledge of the chain.

pub mod accel;
pub mod api;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod doctor;
pub mod fault;
pub mod files;
pub mod health;
pub mod heartbeat;
pub mod helper;
pub mod history;
pub mod install;
pub mod key;
pub mod log;
pub mod machine;
mod patient;
pub mod probe;
pub mod random;
pub mod register;
pub mod run;
pub mod sample;
pub mod sequence;
pub mod slice;
pub mod socket;
#[cfg(test)]
mod stand_in;
pub mod state;
pub mod status;
pub mod task;
pub mod timer;
pub mod topology;
pub mod update;
pub mod uplink;
