use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::key::AgentKey;
use zeroize::Zeroizing;

use crate::clock;
use crate::home;

/// An Ed25519 key of the gateway: for tokens, or for a cluster's commands and tasks.
#[derive(Clone)]
pub struct Seed {
    signing: ed25519_zebra::SigningKey,
    public: AgentKey,
}

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not base64 of 32 bytes.
    #[error("{}: must be one line, base64 of 32 bytes; restore it from a backup", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
    },
    /// The same of one that nothing was signed with which another file does not hold.
    #[error("{}: must be one line, base64 of 32 bytes; remove it: no token needs it", path.display())]
    Drawn {
        /// Which file.
        path: PathBuf,
    },
    /// Not lines of an end and a public key.
    #[error(
        "{}: each line must be UNIX seconds, a space and a public key; restore it from a backup, or move it away: then no former token key counts",
        path.display()
    )]
    Lines {
        /// Which file.
        path: PathBuf,
    },
    /// The cluster's task key was rotated, and the file has the former one.
    #[error(
        "{}: is not the task key that the cluster has by now, {now}; copy the file from the gateway at which it was rotated",
        path.display()
    )]
    Former {
        /// Which file.
        path: PathBuf,
        /// The key that counts.
        now: AgentKey,
    },
    /// The seed gives a key that nobody may use.
    #[error("the random source gave a weak key")]
    Weak,
}

impl Seed {
    /// A key of these 32 secret bytes.
    ///
    /// # Errors
    /// [`SeedError::Weak`], which chance never gives.
    pub fn from_bytes(seed: &[u8; 32]) -> Result<Self, SeedError> {
        let signing = ed25519_zebra::SigningKey::from(*seed);
        let public = ed25519_zebra::VerificationKey::from(&signing);
        let public = AgentKey::from_bytes(public.into()).map_err(|_| SeedError::Weak)?;
        Ok(Self { signing, public })
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// Names the file and what is wrong.
    pub fn load(path: &Path) -> Result<Self, SeedError> {
        let text = home::read_secret(path).map_err(|source| SeedError::File {
            path: path.to_owned(),
            source,
        })?;
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).unwrap_or_default());
        let seed: Zeroizing<[u8; 32]> =
            Zeroizing::new(bytes.as_slice().try_into().map_err(|_| SeedError::Content {
                path: path.to_owned(),
            })?);
        Self::from_bytes(&seed)
    }

    /// Draws a key and writes its file, which must not exist.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn create(path: &Path, random: &[u8; 32]) -> Result<Self, SeedError> {
        let key = Self::from_bytes(random)?;
        let line = Zeroizing::new(STANDARD.encode(random) + "\n");
        home::create_private(path, line.as_bytes()).map_err(|source| SeedError::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(key)
    }

    /// A key drawn into this file, or the one that lies there already.
    ///
    /// # Errors
    /// If the file cannot be made or used.
    pub fn load_or_create(path: &Path) -> Result<Self, SeedError> {
        if path.exists() {
            return Self::load(path);
        }
        let file = |source| SeedError::File {
            path: path.to_owned(),
            source,
        };
        let random = Zeroizing::new(clock::random::<32>().map_err(|e| file(std::io::Error::other(e)))?);
        if let Some(dir) = path.parent() {
            home::make_private_dir(dir).map_err(file)?;
        }
        match Self::create(path, &random) {
            // Another process was faster; its key counts.
            Err(SeedError::File { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::load(path)
            }
            made => made,
        }
    }

    /// Reads the file of a token key that is to take another one's place, if there is one.
    ///
    /// # Errors
    /// If it cannot be used; one that is damaged may be removed.
    pub fn load_drawn(path: &Path) -> Result<Option<Self>, SeedError> {
        match Self::load(path) {
            Err(SeedError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(SeedError::Content { path }) => Err(SeedError::Drawn { path }),
            read => read.map(Some),
        }
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> &AgentKey {
        &self.public
    }

    /// Ed25519 signature over `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.signing.sign(message).into()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_its_debug_form_hides_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token.key");
        let key = Seed::create(&path, &[7; 32]).unwrap();
        assert_eq!(Seed::load(&path).unwrap().public(), key.public());
        assert!(Seed::create(&path, &[8; 32]).is_err());
        assert!(!format!("{key:?}").contains(&STANDARD.encode([7u8; 32])));
    }
}
