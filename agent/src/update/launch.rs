//! Handing over to another version: the same process goes on as the other program.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use minisign_verify::PublicKey;
use semver::Version;

use super::store::Versions;
use crate::fault;
use crate::state::{Lock, StateDir};

/// Which version a program was started as by another one.
const STARTED_AS: &str = "VIRTENGINE_NODE_AGENT_STARTED_AS";

/// The version that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub version: Version,
    /// It was fetched on order, and is not the installed program.
    pub fetched: bool,
}

impl Running {
    /// Of this process.
    #[must_use]
    pub fn here() -> Self {
        let started_as = env::var(STARTED_AS).ok().and_then(|v| Version::parse(&v).ok());
        match started_as {
            Some(version) => Self {
                version,
                fetched: true,
            },
            None => Self {
                // Cargo accepts nothing but semantic versions.
                version: Version::parse(env!("CARGO_PKG_VERSION")).unwrap_or(Version::new(0, 0, 0)),
                fetched: false,
            },
        }
    }
}

/// Becomes the version that is to run, if that is a newer one than this; does not return then. Returns where this one
/// is to go on; says in the log why, if another one was to run.
pub fn launch(state: &StateDir, key: Option<&PublicKey>, running: &Running) {
    let versions = Versions::new(state.versions());
    // Another agent that runs on this state: what follows will say so.
    let Ok(Some(_lock)) = Lock::take(state) else {
        return;
    };
    let mut chosen = match versions.load() {
        Ok(chosen) => chosen,
        Err(e) => {
            tracing::error!("which version is to run cannot be read, this one goes on: {e}");
            return;
        }
    };
    loop {
        let before = chosen.clone();
        let next = chosen.choose(&running.version);
        if chosen != before {
            if let Some(failed) = chosen
                .failed
                .as_ref()
                .filter(|f| before.failed.as_ref() != Some(*f))
            {
                tracing::error!(version = %failed.version, "taken back: {}", failed.reason);
            }
            // A start that is not counted could be repeated for ever.
            if let Err(e) = versions.save(&chosen) {
                tracing::error!("which version is to run cannot be written, this one goes on: {e}");
                return;
            }
        }
        let Some(version) = next else { return };
        let Some(key) = key else {
            tracing::warn!(%version, "fetched, and not started: update.release_key is not set");
            return;
        };
        let reason = match versions.check(&version, key) {
            Ok(_) => {
                fault::point("update.counted");
                become_other(&versions, &version)
            }
            Err(e) => e,
        };
        chosen.take_back(&reason);
        tracing::error!(%version, "taken back: {reason}");
        if let Err(e) = versions.save(&chosen) {
            tracing::error!("which version is to run cannot be written, this one goes on: {e}");
            return;
        }
    }
}

/// Replaces this program, keeping process id, arguments and environment. Returns only what went wrong.
fn become_other(versions: &Versions, version: &Version) -> String {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    tracing::info!(%version, "handing over");
    let error = Command::new(versions.program(version))
        .args(arguments)
        .env(STARTED_AS, version.to_string())
        .exec();
    format!("it cannot be started: {error}")
}
