//! The contract's interface: messages, queries, answers, parameters, events, permissions.

pub mod answer;
pub mod event;
pub mod msg;
pub mod params;
pub mod permission;

pub use answer::*;
pub use event::{Event, EventError, NodeIds};
pub use msg::*;
pub use params::{ClusterCreation, Coin, Params, ParamsError, ParamsUpdate};
pub use permission::{Permission, permission};
