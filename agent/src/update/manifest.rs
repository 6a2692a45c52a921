//! What a release says of itself, and the proof that the release key's owner said it. Pure.

use minisign_verify::{PublicKey, Signature};
use semver::Version;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Name that a manifest must carry.
const NAME: &str = "virtengine-node-agent";

/// The file `<program>.manifest.json`, signed by `minisign -S` into `<program>.manifest.json.minisig`.
///
/// Unknown members are let through: later releases may say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// `virtengine-node-agent`.
    pub name: String,
    /// Semantic version.
    pub version: Version,
    /// `linux-amd64`, `linux-arm64`, …
    pub platform: String,
    /// Of the program, in bytes.
    pub size: u64,
    /// Of the program, lower-case hex.
    pub sha256: String,
}

/// A manifest with its signature, as they were fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The manifest's bytes: what is signed.
    pub manifest: Vec<u8>,
    /// The signature file's text.
    pub signature: String,
}

/// Why a release is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ManifestError {
    /// The signature is not the release key's.
    #[error("the manifest is not signed by update.release_key: {0}")]
    Signature(String),
    /// The manifest cannot be read.
    #[error("the manifest cannot be read: {0}")]
    Unreadable(String),
    /// It is about something else.
    #[error("the manifest's {member} is {found}, not {expected}")]
    Other {
        /// Which member.
        member: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        expected: String,
    },
    /// The program is not the one that the manifest describes.
    #[error("the program is not the one of the manifest: {0}")]
    Program(&'static str),
}

impl Release {
    /// The manifest, if the release key's owner signed it and it is of this program and platform.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn verify(&self, key: &PublicKey) -> Result<Manifest, ManifestError> {
        let bad = |e: minisign_verify::Error| ManifestError::Signature(e.to_string());
        let signature = Signature::decode(&self.signature).map_err(bad)?;
        // Only the prehashed form: what minisign has written since 2021.
        key.verify(&self.manifest, &signature, false).map_err(bad)?;
        let manifest: Manifest =
            serde_json::from_slice(&self.manifest).map_err(|e| ManifestError::Unreadable(e.to_string()))?;
        manifest.is("name", &manifest.name, NAME)?;
        manifest.is("platform", &manifest.platform, &platform())?;
        Ok(manifest)
    }
}

impl Manifest {
    /// Whether a member says what it should.
    ///
    /// # Errors
    /// [`ManifestError::Other`].
    pub fn is(&self, member: &'static str, found: &str, expected: &str) -> Result<(), ManifestError> {
        if found == expected {
            return Ok(());
        }
        Err(ManifestError::Other {
            member,
            found: found.to_owned(),
            expected: expected.to_owned(),
        })
    }

    /// Whether these bytes are the program.
    ///
    /// # Errors
    /// [`ManifestError::Program`].
    pub fn describes(&self, program: &[u8]) -> Result<(), ManifestError> {
        if u64::try_from(program.len()) != Ok(self.size) {
            return Err(ManifestError::Program("another size"));
        }
        if hex::encode(Sha256::digest(program)) != self.sha256 {
            return Err(ManifestError::Program("another SHA-256"));
        }
        Ok(())
    }
}

/// This platform as releases name it.
#[must_use]
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}-{arch}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with minisign 0.11: `minisign -G -W`, `minisign -S -m manifest.json -t release`.
    const KEY: &str = include_str!("testdata/minisign.pub");
    const MANIFEST: &[u8] = include_bytes!("testdata/manifest.json");
    const SIGNATURE: &str = include_str!("testdata/manifest.json.minisig");

    fn key() -> PublicKey {
        PublicKey::decode(KEY).unwrap()
    }

    fn release() -> Release {
        Release {
            manifest: MANIFEST.to_vec(),
            signature: SIGNATURE.to_owned(),
        }
    }

    #[test]
    fn what_minisign_signed_is_read_and_anything_else_is_refused() {
        if platform() == "linux-amd64" {
            let manifest = release().verify(&key()).unwrap();
            assert_eq!(manifest.version, Version::new(0, 2, 0));
            assert_eq!(manifest.describes(b"the program\n"), Ok(()));
            assert_eq!(
                manifest.describes(b"the Program\n"),
                Err(ManifestError::Program("another SHA-256"))
            );
            assert_eq!(
                manifest.describes(b""),
                Err(ManifestError::Program("another size"))
            );
        }
        for at in 0..MANIFEST.len() {
            let mut other = release();
            other.manifest[at] ^= 1;
            assert!(
                matches!(other.verify(&key()), Err(ManifestError::Signature(_))),
                "byte {at}"
            );
        }
        let unsigned = Release {
            signature: String::new(),
            ..release()
        };
        assert!(matches!(
            unsigned.verify(&key()),
            Err(ManifestError::Signature(_))
        ));
        let another =
            PublicKey::from_base64("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3").unwrap();
        assert!(matches!(
            release().verify(&another),
            Err(ManifestError::Signature(_))
        ));
    }
}
