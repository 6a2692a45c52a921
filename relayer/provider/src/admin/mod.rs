//! What operators see and decide, the same by command line and by the admin listener. Every decision is appended to
//! the audit log in its own transaction; so is every one that was refused.

mod act;
mod certificate;
mod cluster;
pub mod credential;
mod disable;
mod drain;
mod error;
pub mod http;
mod node;
mod order;
mod pay;
mod proof;
mod registration;
mod reload;
mod slot;
mod status;
mod submit;
mod task;
mod task_key;
mod task_proof;
mod token;
mod token_key;
mod watch;

pub use act::Act;
pub use certificate::Certificates;
pub use drain::Drain;
pub use error::AdminError;
pub use node::{NodeFull, NodeRow, Refused};
pub use order::{MAX_DEADLINE_SECONDS, Order};
pub use registration::Waiting;
pub use slot::{ApprovedSlot, SlotSize, WhichSlot};
pub use status::Status;
pub use submit::{MAX_LIFE_SECONDS, Submission};
pub use task::TaskFull;
pub use task_key::Rotated;
pub use token::{JoinWanted, MAX_EXPIRES_SECONDS, MAX_USES, Shown, Wanted};
pub use token_key::RotatedTokenKey;
pub use watch::Seen;

use std::sync::Weak;

use hpc_chain::keys::SharedSigner;

use crate::config::Config;
use crate::gateway::Gateway;
use crate::home::Home;
use crate::store::Store;

/// The desk at which operators' decisions are made.
#[derive(Debug, Clone)]
pub struct Admin {
    /// The daemon's directory.
    pub home: Home,
    /// As configured.
    pub config: Config,
    /// The database.
    pub store: Store,
    /// The operator key that the daemon has opened; none: it is opened when it is needed.
    pub operator: Option<SharedSigner>,
    /// The gateway, where this is the daemon: a node that waits there is given its task directly.
    pub gateway: Weak<Gateway>,
}

#[cfg(test)]
impl Admin {
    /// One with a new store in this directory, where no daemon runs.
    async fn alone(dir: &std::path::Path, config: Config) -> Self {
        Self {
            home: Home::new(dir),
            config,
            store: Store::open(&dir.join("p.db")).await.unwrap(),
            operator: None,
            gateway: Weak::new(),
        }
    }
}
