//! From a fetched release to the version that runs next.

use std::time::Duration;

use minisign_verify::PublicKey;
use semver::Version;

use super::manifest::{ManifestError, Release};
use super::store::Versions;
use crate::fault;
use crate::files::FileError;
use crate::probe::tool::Tool;

/// A program says its version at once; a broken one may hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the provider orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Which version.
    pub version: Version,
    /// Where its program is.
    pub url: String,
    /// SHA-256 of the program, lower-case hex.
    pub sha256: String,
}

/// Why a release is not taken.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// It is none, or not the one that was ordered.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// It would be a step back.
    #[error("version {ordered} is not newer than {present}, which runs")]
    NotNewer {
        /// What was ordered.
        ordered: Version,
        /// What runs.
        present: Version,
    },
    /// It does not run here.
    #[error("the program does not run here: {0}")]
    Broken(String),
    /// It cannot be kept.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Checks a release against the order and the release key, tries its program, and has it run at the next start.
///
/// # Errors
/// [`StageError`]; what runs now then stays what runs next.
pub fn stage(
    versions: &Versions,
    order: &Order,
    (release, program): (&Release, &[u8]),
    key: &PublicKey,
    present: &Version,
) -> Result<(), StageError> {
    let manifest = release.verify(key)?;
    manifest.is(
        "version",
        &manifest.version.to_string(),
        &order.version.to_string(),
    )?;
    manifest.is("sha256", &manifest.sha256, &order.sha256)?;
    manifest.describes(program)?;
    if order.version <= *present {
        return Err(StageError::NotNewer {
            ordered: order.version.clone(),
            present: present.clone(),
        });
    }
    versions.put(&order.version, release, program)?;
    fault::point("update.put");
    let mut tool = Tool::new(versions.program(&order.version), PATIENCE, 4096);
    let said = tool
        .run(&["--version"])
        .map_err(|e| StageError::Broken(e.to_string()))?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    let expected = format!("virtengine-node-agent {}", order.version);
    if said != expected {
        return Err(StageError::Broken(format!("it says {said:?}, not {expected:?}")));
    }
    fault::point("update.tried");
    let mut state = versions.load()?;
    state.turn_to(order.version.clone());
    versions.save(&state)?;
    fault::point("update.turned");
    Ok(())
}
