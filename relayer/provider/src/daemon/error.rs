use std::net::SocketAddr;
use std::path::PathBuf;

use hpc_chain::keys::{KeyError, KeyringError};

use crate::alert::SinkError;
use crate::config::ConfigError;
use crate::gateway::TlsError;
use crate::identity::{AnchorError, CaError, SeedError};
use crate::settle::DriverError;
use crate::store::StoreError;

/// Why the daemon does not run (any more).
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The chain is not the one configured, or the contract is not there.
    #[error("{0}")]
    Chain(String),
    /// An address or price that is none.
    #[error("{key}: {message}")]
    Value {
        /// Key of the configuration.
        key: &'static str,
        /// What is wrong.
        message: String,
    },
    /// A file of the daemon's directory is missing or broken.
    #[error("cannot use {}, which `virtengine-provider init` makes: {cause}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Another daemon runs on this directory.
    #[error("{}: another virtengine-provider runs on this directory", .0.display())]
    Locked(PathBuf),
    /// A key.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// A key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A key that does not sign.
    #[error("key {name}: {source}")]
    Unusable {
        /// Its name.
        name: String,
        /// Why.
        source: KeyError,
    },
    /// A key.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The CA.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// A trusted CA.
    #[error(transparent)]
    Anchors(#[from] AnchorError),
    /// A receiver of alerts.
    #[error(transparent)]
    Alerts(#[from] SinkError),
    /// The TLS side.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A port is taken or may not be used.
    #[error("cannot listen on {addr}; stop what holds the port, or write another address into config.yaml")]
    Bind {
        /// Which.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration as it is now cannot be used.
    #[error("{0}")]
    Reload(String),
    /// The operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Settlement cannot go on.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Something ended by itself.
    #[error("{0} has stopped unexpectedly; see the log")]
    Ended(&'static str),
}

impl StartError {
    /// Exit code after sysexits.h: 78 configuration, 74 disk, 69 a service, 70 a bug.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Reload(_)
            | Self::Chain(_)
            | Self::Value { .. }
            | Self::File { .. }
            | Self::Keyring(_)
            | Self::Key(_)
            | Self::Unusable { .. }
            | Self::Seed(_)
            | Self::Ca(_)
            | Self::Anchors(_)
            | Self::Tls(_)
            | Self::Alerts(_)
            | Self::Store(StoreError::Bound { .. } | StoreError::Config { .. })
            | Self::Driver(DriverError::WrongChain { .. } | DriverError::Former { .. }) => 78,
            Self::Store(_) | Self::Io(_) | Self::Driver(DriverError::Store(_)) => 74,
            Self::Locked(_) | Self::Bind { .. } => 69,
            Self::Ended(_) => 70,
        }
    }
}
