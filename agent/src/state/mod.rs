//! The state directory: everything that must survive a restart.
//!
//! ```text
//! registration.json   what the chain knows of this node (no secret)
//! register.json       the request that is under way, 0600; gone once it is answered
//! sequence            the durable counter
//! status.json         what `status` prints
//! orders.json         the provider's orders, and what became of each
//! service.json        whether the node is out of service, and the audit of that
//! service.wish        what a person wishes of it; gone once it is read
//! diagnostics/        reports of diagnostics, the last few
//! versions/           programs that were fetched on order, and which of them runs
//! outages.json        when heartbeats did not arrive, the last few
//! gpus.json           how many GPUs were on the bus, until a person accepts that there are fewer
//! ports.json          InfiniBand ports that were active, in the same way
//! slurm.json          what Slurm said of the node last: its cores, and a drain
//! history/            samples of each category
//! lock                held while `run` runs: two agents must not share a counter
//! registration.lock   held for the moment in which registration.json, or the CA file that goes with it, is written
//! rotate.lock         held while `key rotate` runs
//! tls/ca.crt          the CAs that are trusted, unless provider_daemon.tls.ca_cert names another file
//! tls/client.pem      renewed certificate and key in one file, 0600
//! ```

mod lock;
mod outage;
mod registration;
mod service;
mod status;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use lock::Lock;
pub use outage::{Outage, Outages};
pub use registration::{Handover, Pending, Registration};
pub use service::{ServiceChange, ServiceRecord, ServiceWish};
pub use status::{
    CertificateStatus, ChainView, ErrorCounts, JobCounts, OrderStatus, Problem, Receipt, Status, StatusFile,
};

use crate::files::{
    Durability, FileError, REGISTRATION_FILE, Replace, at, create_directory, read_text, write,
};

/// Where the specification puts state.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/virtengine/node-agent";

/// The directory and the names in it.
#[derive(Debug, Clone)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Names a directory; nothing is touched.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Makes the directory if it is missing.
    ///
    /// # Errors
    /// IO.
    pub fn create(&self) -> Result<(), FileError> {
        create_directory(&self.0)?;
        create_directory(&self.0.join("tls"))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether this file lies in it: one elsewhere is the operator's.
    #[must_use]
    pub fn holds(&self, file: &Path) -> bool {
        file.starts_with(&self.0)
    }

    /// The durable counter.
    #[must_use]
    pub fn sequence(&self) -> PathBuf {
        self.0.join("sequence")
    }

    /// Renewed certificate and key.
    #[must_use]
    pub fn renewed_identity(&self) -> PathBuf {
        self.0.join("tls/client.pem")
    }

    /// Samples of each category.
    #[must_use]
    pub fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    /// The provider's orders.
    #[must_use]
    pub fn orders(&self) -> PathBuf {
        self.0.join("orders.json")
    }

    /// Versions that were fetched.
    #[must_use]
    pub fn versions(&self) -> PathBuf {
        self.0.join("versions")
    }

    /// Reports of diagnostics.
    #[must_use]
    pub fn diagnostics(&self) -> PathBuf {
        self.0.join("diagnostics")
    }

    /// How many GPUs were on the bus.
    #[must_use]
    pub fn gpus(&self) -> PathBuf {
        self.0.join("gpus.json")
    }

    /// InfiniBand ports that were active.
    #[must_use]
    pub fn ports(&self) -> PathBuf {
        self.0.join("ports.json")
    }

    /// What Slurm said of the node last.
    #[must_use]
    pub fn slurm(&self) -> PathBuf {
        self.0.join("slurm.json")
    }

    /// What is not there any more is not missed: a person has accepted it.
    pub fn accept_devices(&self) {
        forget(&[self.gpus(), self.ports()]);
    }

    /// The machine is registered as it is now: nothing of it is missed, and what Slurm said was of the one before.
    pub fn forget_devices(&self) {
        forget(&[self.gpus(), self.ports(), self.slurm()]);
    }

    /// Whether the node is in service.
    #[must_use]
    pub fn service(&self) -> PathBuf {
        self.0.join("service.json")
    }

    fn service_wish(&self) -> PathBuf {
        self.0.join("service.wish")
    }

    fn outages(&self) -> PathBuf {
        self.0.join("outages.json")
    }

    pub(crate) fn registration(&self) -> PathBuf {
        self.0.join(REGISTRATION_FILE)
    }

    fn pending(&self) -> PathBuf {
        self.0.join("register.json")
    }

    /// What `status` prints.
    #[must_use]
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    fn registration_lock(&self) -> PathBuf {
        self.0.join("registration.lock")
    }

    /// Held while `key rotate` runs.
    #[must_use]
    pub fn rotate_lock(&self) -> PathBuf {
        self.0.join("rotate.lock")
    }

    /// Held while `run` runs.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
}

fn forget(files: &[PathBuf]) {
    for path in files {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!("what was there is not forgotten: {}: {e}", path.display());
            }
            _ => {}
        }
    }
}

/// More than any of these files; a damaged one must not fill memory.
const LIMIT: u64 = 1 << 20;

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FileError> {
    match read_text(path, LIMIT) {
        Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|e| at("read", path)(std::io::Error::new(std::io::ErrorKind::InvalidData, e))),
    }
}

pub(crate) fn write_json<T: Serialize>(
    path: &Path,
    value: &T,
    mode: u32,
    durability: Durability,
) -> Result<(), FileError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| at("write", path)(e.into()))?;
    bytes.push(b'\n');
    write(path, &bytes, mode, Replace::Yes, durability)
}

#[cfg(test)]
pub(crate) use registration::tests::a_registration;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_registration_forgets_what_slurm_said_and_a_return_to_service_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let all = [state.gpus(), state.ports(), state.slurm()];
        let there = || all.each_ref().map(|path| path.exists());
        for path in &all {
            std::fs::write(path, "{}").unwrap();
        }
        state.accept_devices();
        assert_eq!(there(), [false, false, true]);
        state.forget_devices();
        assert_eq!(there(), [false; 3]);
    }
}
