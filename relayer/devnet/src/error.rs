//! What can go wrong with the chain itself, as against with a transaction.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A fault of the chain's own parts. None of these is caused by a client's request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be used.
    #[error("cannot use {path}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The listener could not be opened.
    #[error("cannot listen on {addr}; choose another --rpc-addr or stop what holds the port")]
    Listen {
        addr: SocketAddr,
        source: std::io::Error,
    },
    /// An address that other machines reach was not allowed.
    #[error(
        "rpc address {0} is not a loopback address: anybody who reaches it can use this chain; pass --allow-remote if that is wanted"
    )]
    RemoteNotAllowed(SocketAddr),
    /// Another process has the home folder.
    #[error("{}: another process uses this home folder; stop it, or choose another --home", .0.display())]
    Locked(PathBuf),
    /// The genesis is wrong or is another one than the state was made with.
    #[error("genesis: {0}")]
    Genesis(String),
    /// The database refused.
    #[error("state database: {0}")]
    Database(String),
    /// What stands in the database is not what this program writes.
    #[error("state database is damaged: {0}; remove the home folder to start anew")]
    Damaged(String),
    /// [`crate::Handle::halt`] is in force.
    #[error("the chain is halted; resume it first")]
    Halted,
    /// A write failed earlier; nothing more is committed.
    #[error("the chain has stopped: {0}")]
    Stopped(String),
}

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}
