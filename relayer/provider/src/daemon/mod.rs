//! The daemon: everything is started and stopped here, in order.

mod admin;
mod alive;
mod anchor;
mod check;
mod error;
mod files;
mod forget;
mod lead;
mod open;
mod passphrase;
mod probes;
mod reload;
mod renew;
mod running;
mod signers;
mod start;
mod stop;
mod task_keys;
mod tasks;

use std::net::SocketAddr;

use hpc_chain::rpc::Follower;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use alive::Alive;
pub use error::StartError;
pub(crate) use open::{check_files, client, load_ca, named_key, not_found, runs};
pub use open::{load_key, prefix_of};
pub(crate) use passphrase::{NextError, next_passphrase, passphrase};
use reload::Reload;
pub use reload::Reread;
use running::Running;

use crate::config::Live;
use crate::home::{self, Home};
use crate::store::Store;

/// A daemon that runs.
#[derive(Debug)]
pub struct Daemon {
    gateway_addr: SocketAddr,
    ops_addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
    live: Live,
    store: Store,
    stop_intake: watch::Sender<bool>,
    stop_settlement: watch::Sender<bool>,
    stop_rest: watch::Sender<bool>,
    intake: JoinHandle<()>,
    spool: JoinHandle<()>,
    driver: JoinHandle<Result<(), StartError>>,
    checking: JoinHandle<StartError>,
    rest: Running,
    reload: Reload,
    // Held for the daemon's life: the endpoints are followed as long as it is there.
    _follower: Follower,
    // Held for the daemon's life: two processes on one key would fight over its sequence.
    _lock: std::fs::File,
}

impl Daemon {
    /// Where agents connect to.
    #[must_use]
    pub fn gateway_addr(&self) -> SocketAddr {
        self.gateway_addr
    }

    /// Where health, readiness and metrics are.
    #[must_use]
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops_addr
    }

    /// Where operators connect to, if anywhere.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// The configuration in force.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Takes a changed gateway certificate, changed trusted CAs and a changed configuration into use; no connection is
    /// dropped.
    ///
    /// # Errors
    /// Names the file or key; everything stays as it was.
    pub async fn reload(&self) -> Result<(), StartError> {
        self.reload.run().await
    }

    /// Whether it works, for a watchdog.
    #[must_use]
    pub fn alive(&self) -> Alive {
        Alive::new(self.store.clone())
    }
}

/// Writes the gateway's certificate and key.
fn store_server(home: &Home, cert: &str, key: &str) -> std::io::Result<()> {
    home::replace_private(&home.server_key(), key.as_bytes())?;
    home::replace_private(&home.server_cert(), cert.as_bytes())
}
