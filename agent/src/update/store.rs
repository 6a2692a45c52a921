//! Versions on disk, and which of them is to run. The choice is pure; the rest are files.
//!
//! ```text
//! <state_dir>/versions/state.json                        which version runs, which ran before, which failed
//! <state_dir>/versions/<version>/virtengine-node-agent   the program, with its manifest and signature beside it
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use minisign_verify::PublicKey;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, ManifestError, Release};
use crate::fault;
use crate::files::{Durability, FileError, Replace, at, create_directory, read_text, write};
use crate::state::{read_json, write_json};

/// Starts that a version gets until a gateway has accepted a heartbeat of it.
const STARTS: u32 = 2;
/// Larger manifests and signatures are none.
const SMALL: u64 = 16 << 10;
const PROGRAM: &str = "virtengine-node-agent";
const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "manifest.json.minisig";

/// Which version is to run.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Instead of the installed program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Pointer>,
    /// The proven one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Version>,
    /// The last one that did not prove itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
}

/// A version, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Which.
    pub version: Version,
    /// A gateway has accepted a heartbeat of it.
    pub proven: bool,
    /// How often it was started before that.
    pub starts: u32,
}

/// A version that was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    pub version: Version,
    /// Why.
    pub reason: String,
}

impl State {
    /// The version to hand over to, its start counted; none if that is the `present` one. A version that has had its
    /// starts is taken back, and one that the present program has overtaken forgotten.
    pub fn choose(&mut self, present: &Version) -> Option<Version> {
        loop {
            let current = self.current.as_mut()?;
            if current.version <= *present {
                // A newer package was installed since.
                *self = Self {
                    failed: self.failed.take(),
                    ..Self::default()
                };
                return None;
            }
            if current.proven {
                return Some(current.version.clone());
            }
            if current.starts < STARTS {
                current.starts = current.starts.saturating_add(1);
                return Some(current.version.clone());
            }
            self.take_back(&format!(
                "it was started {STARTS} times and no gateway accepted a heartbeat of it"
            ));
        }
    }

    /// Takes the current version back: the one before it is to run again.
    pub fn take_back(&mut self, reason: &str) {
        if let Some(current) = self.current.take() {
            self.failed = Some(Failed {
                version: current.version,
                reason: reason.to_owned(),
            });
        }
        self.current = self.previous.take().map(|version| Pointer {
            version,
            proven: true,
            starts: 0,
        });
    }

    /// From now on `version` is to run.
    pub fn turn_to(&mut self, version: Version) {
        let proven = self.current.take().filter(|c| c.proven && c.version != version);
        self.previous = proven.map(|c| c.version).or(self.previous.take());
        self.failed = None;
        self.current = Some(Pointer {
            version,
            proven: false,
            starts: 0,
        });
    }
}

/// The directory of versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions(PathBuf);

impl Versions {
    /// Names it; nothing is touched.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Which version is to run.
    ///
    /// # Errors
    /// IO, damaged file.
    pub fn load(&self) -> Result<State, FileError> {
        Ok(read_json(&self.state())?.unwrap_or_default())
    }

    /// Writes it, durably and in one step.
    ///
    /// # Errors
    /// IO.
    pub fn save(&self, state: &State) -> Result<(), FileError> {
        create_directory(&self.0)?;
        write_json(&self.state(), state, 0o600, Durability::Synced)
    }

    /// The program of a version.
    #[must_use]
    pub fn program(&self, version: &Version) -> PathBuf {
        self.directory(version).join(PROGRAM)
    }

    /// Puts a release there, whole or not at all.
    ///
    /// # Errors
    /// IO.
    pub fn put(&self, version: &Version, release: &Release, program: &[u8]) -> Result<(), FileError> {
        create_directory(&self.0)?;
        let (there, half) = (self.directory(version), self.0.join(".new"));
        for path in [&half, &there] {
            remove(path)?;
        }
        create_directory(&half)?;
        let synced = |name: &str, bytes: &[u8], mode: u32| {
            write(&half.join(name), bytes, mode, Replace::Yes, Durability::Synced)
        };
        synced(PROGRAM, program, 0o700)?;
        fault::point("update.half");
        synced(MANIFEST, &release.manifest, 0o600)?;
        synced(SIGNATURE, release.signature.as_bytes(), 0o600)?;
        fs::rename(&half, &there).map_err(at("write", &there))?;
        fs::File::open(&self.0)
            .and_then(|d| d.sync_all())
            .map_err(at("write", &self.0))
    }

    /// The manifest of a version that lies here, its signature and its program checked again.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn check(&self, version: &Version, key: &PublicKey) -> Result<Manifest, String> {
        let directory = self.directory(version);
        let text = |name: &str| read_text(&directory.join(name), SMALL).map_err(|e| e.to_string());
        let release = Release {
            manifest: text(MANIFEST)?.into_bytes(),
            signature: text(SIGNATURE)?,
        };
        let describe = |e: ManifestError| e.to_string();
        let manifest = release.verify(key).map_err(describe)?;
        manifest
            .is("version", &manifest.version.to_string(), &version.to_string())
            .map_err(describe)?;
        let path = self.program(version);
        let program = fs::read(&path).map_err(|e| at("read", &path)(e).to_string())?;
        manifest.describes(&program).map_err(describe)?;
        Ok(manifest)
    }

    /// Removes every version but those that are still spoken of.
    ///
    /// # Errors
    /// IO.
    pub fn tidy(&self, state: &State) -> Result<(), FileError> {
        let kept: Vec<PathBuf> = (state.current.iter().map(|c| &c.version))
            .chain(&state.previous)
            .map(|v| self.directory(v))
            .collect();
        let Ok(entries) = fs::read_dir(&self.0) else {
            return Ok(());
        };
        for path in entries.filter_map(Result::ok).map(|e| e.path()) {
            if path.is_dir() && !kept.contains(&path) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn directory(&self, version: &Version) -> PathBuf {
        self.0.join(version.to_string())
    }

    fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(at("remove", path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(minor: u64) -> Version {
        Version::new(0, minor, 0)
    }

    #[test]
    fn a_version_that_proves_itself_stays_and_one_that_does_not_gives_way_to_the_last_that_did() {
        let mut state = State::default();
        assert_eq!(state.choose(&v(1)), None);
        state.turn_to(v(2));
        assert_eq!(state.choose(&v(1)), Some(v(2)));
        state.current.as_mut().unwrap().proven = true;
        for _ in 0..5 {
            assert_eq!(state.choose(&v(1)), Some(v(2)));
        }
        state.turn_to(v(3));
        assert_eq!(
            (state.choose(&v(1)), state.choose(&v(1))),
            (Some(v(3)), Some(v(3)))
        );
        assert_eq!(
            state.choose(&v(1)),
            Some(v(2)),
            "two starts, then the last proven one"
        );
        assert_eq!(state.failed.as_ref().unwrap().version, v(3));
        assert_eq!(state.choose(&v(1)), Some(v(2)));
    }

    #[test]
    fn without_a_proven_one_before_it_the_installed_program_runs_again() {
        let mut state = State::default();
        state.turn_to(v(2));
        state.choose(&v(1));
        state.choose(&v(1));
        assert_eq!(state.choose(&v(1)), None);
        assert!(state.current.is_none() && state.failed.is_some());
    }

    #[test]
    fn a_newer_package_overtakes_what_was_fetched() {
        let mut state = State::default();
        state.turn_to(v(2));
        state.current.as_mut().unwrap().proven = true;
        assert_eq!(state.choose(&v(2)), None);
        assert_eq!(state, State::default());
    }

    #[test]
    fn an_unproven_version_is_never_the_one_to_go_back_to() {
        let mut state = State::default();
        state.turn_to(v(2));
        state.turn_to(v(3));
        assert_eq!(state.previous, None);
    }
}
