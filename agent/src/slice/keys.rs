//! Ed25519 keys as OpenSSH keeps them (its PROTOCOL.key): the secret one without a passphrase, in a file of mode 0600.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::{SigningKey, VerificationKey};

use crate::random;

const KIND: &[u8] = b"ssh-ed25519";
const COLUMNS: usize = 70;

/// A fresh key.
pub struct SshKey {
    /// PEM of the secret key.
    pub secret: String,
    /// `ssh-ed25519 AAAA… comment`.
    pub public: String,
}

impl std::fmt::Debug for SshKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl SshKey {
    /// Draws one.
    ///
    /// # Errors
    /// No randomness from the kernel.
    pub fn draw(comment: &str) -> std::io::Result<Self> {
        Ok(Self::of(random::bytes()?, random::bytes()?, comment))
    }

    fn of(seed: [u8; 32], check: [u8; 4], comment: &str) -> Self {
        let public: [u8; 32] = VerificationKey::from(&SigningKey::from(seed)).into();
        let mut blob = Vec::new();
        lp(&mut blob, KIND);
        lp(&mut blob, &public);
        let mut inner = Vec::new();
        // The same twice: who decrypts with a wrong passphrase sees that they differ.
        inner.extend_from_slice(&check);
        inner.extend_from_slice(&check);
        lp(&mut inner, KIND);
        lp(&mut inner, &public);
        lp(&mut inner, &[seed, public].concat());
        lp(&mut inner, comment.as_bytes());
        for pad in 1u8..=7 {
            if inner.len().is_multiple_of(8) {
                break;
            }
            inner.push(pad);
        }
        let mut all = b"openssh-key-v1\0".to_vec();
        for part in [b"none".as_slice(), b"none", b""] {
            lp(&mut all, part);
        }
        all.extend_from_slice(&1u32.to_be_bytes());
        lp(&mut all, &blob);
        lp(&mut all, &inner);
        let mut secret = "-----BEGIN OPENSSH PRIVATE KEY-----\n".to_owned();
        for line in STANDARD.encode(&all).as_bytes().chunks(COLUMNS) {
            secret.extend(line.iter().map(|b| char::from(*b)));
            secret.push('\n');
        }
        secret.push_str("-----END OPENSSH PRIVATE KEY-----\n");
        Self {
            secret,
            public: format!("ssh-ed25519 {} {comment}", STANDARD.encode(&blob)),
        }
    }

    /// Without the comment.
    #[must_use]
    pub fn bare(&self) -> String {
        let words: Vec<&str> = self.public.split(' ').take(2).collect();
        words.join(" ")
    }
}

fn lp(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn openssh_reads_the_key_and_finds_the_same_public_one() {
        let key = SshKey::draw("virtengine").unwrap();
        assert!(key.public.parse::<hpc_schema::task::SshPublicKey>().is_ok());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, &key.secret).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let out = Command::new("ssh-keygen")
            .arg("-y")
            .arg("-f")
            .arg(&path)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        assert_eq!(String::from_utf8(out.stdout).unwrap().trim(), key.public);
        assert_ne!(SshKey::draw("virtengine").unwrap().public, key.public);
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }
}
