//! Nodes: pages, identities, registration, drains.

pub(crate) mod change;
pub(crate) mod deregister;
pub(crate) mod drain;
pub(crate) mod fingerprint;
pub(crate) mod identity;
pub(crate) mod list;
pub(crate) mod on_record;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod raw;
pub(crate) mod register;
pub(crate) mod resolve;
pub(crate) mod verify;
pub(crate) mod view;
mod walk;
