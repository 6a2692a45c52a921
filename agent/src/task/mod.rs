//! The task domain (specifications 003 and 004): a process apart from the heartbeat that carries out typed tasks,
//! signed by the cluster's task key, and nothing else. Handlers change the host through journalled effects alone.

pub mod authority;
mod context;
pub mod domain;
pub mod effect;
pub mod exec;
mod failure;
pub mod guard;
mod handler;
pub mod handlers;
mod host;
mod images;
pub mod jail;
pub mod journal;
mod ledger;
mod leftovers;
mod limited;
pub mod link;
pub mod news;
mod owner;
pub mod policy;
pub mod process;
mod refusals;
pub mod safety;
mod saga;
pub mod start;
mod steward;
mod stop;
mod undo;
pub mod user;
pub mod users;
pub mod verify;

pub use authority::Authority;
pub use context::{Context, Handle, Tell};
pub use failure::Failure;
pub use handler::{Handler, Recovery};
pub use host::{Host, TaskDir};
pub use journal::Shared;
pub use ledger::{Holding, Ledger, OwnerLock, Residue};
pub use leftovers::Leftovers;
pub use owner::Owner;
pub use policy::Policy;
pub use steward::Steward;
pub use stop::Stop;
pub use undo::Undone;

#[cfg(test)]
mod tests;
