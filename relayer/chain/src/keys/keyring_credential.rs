//! Keys that are credentials of systemd, as a keyring notes them.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::backend::Backend;
use super::credential::{CREDENTIALS_ENV, open};
use super::keyring::{KeyInfo, Keyring, Secret, write};
use super::keyring_error::KeyringError;

impl Keyring {
    /// Stores under a new name of which systemd credential a key is; the credential itself, a mnemonic, is read and stays
    /// where it is.
    ///
    /// # Errors
    /// [`KeyringError::Credential`] if it is not at hand, [`KeyringError::CredentialWords`] if it is no mnemonic,
    /// [`KeyringError::Exists`], …
    pub fn add_credential(&self, name: &str, credential: &str) -> Result<KeyInfo, KeyringError> {
        self.add_credential_of(name, credential, std::env::var_os(CREDENTIALS_ENV))
    }

    pub(super) fn add_credential_of(
        &self,
        name: &str,
        credential: &str,
        folder: Option<OsString>,
    ) -> Result<KeyInfo, KeyringError> {
        let path = self.path(name)?;
        let _held = self.beside()?;
        if path.exists() {
            return Err(KeyringError::Exists(name.to_owned()));
        }
        let key = open(name, credential, folder)?;
        let info = KeyInfo {
            name: name.to_owned(),
            backend: Backend::Credential,
            public_key: STANDARD.encode(key.public_key()),
        };
        write(&path, info, Secret::Credential(credential.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::keyring::same;
    use super::super::local::LocalKey;
    use super::super::mnemonic::{DEFAULT_PATH, Mnemonic};
    use super::*;

    fn no_passphrase(_: &KeyInfo) -> Result<super::super::Passphrase, KeyringError> {
        panic!("nobody is asked for one")
    }

    #[test]
    fn a_credential_is_a_key_while_it_is_handed_over_and_no_file_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, ring) = (dir.path().join("credentials"), dir.path().join("ring"));
        fs::create_dir(&folder).unwrap();
        let handed = || Some(folder.clone().into_os_string());
        let words = Mnemonic::generate().unwrap().words();
        fs::write(folder.join("relayer"), format!("{}\n", *words)).unwrap();
        let keyring = Keyring::open(&ring, Backend::File).unwrap();

        for (credential, folder) in [("relayer", None), ("other", handed())] {
            let refused = keyring.add_credential_of("relayer", credential, folder);
            assert!(
                matches!(refused, Err(KeyringError::Credential { .. })),
                "{refused:?}"
            );
        }
        for name in ["../ring", "", "a/b", ".."] {
            let refused = keyring.add_credential_of("relayer", name, handed());
            assert!(
                matches!(refused, Err(KeyringError::CredentialName(_))),
                "{name}: {refused:?}"
            );
        }
        let info = keyring.add_credential_of("relayer", "relayer", handed()).unwrap();
        assert_eq!(info.backend, Backend::Credential);
        let again = keyring.add_credential_of("relayer", "relayer", handed());
        assert!(matches!(again, Err(KeyringError::Exists(_))));
        let kept = fs::read_to_string(ring.join("relayer.key")).unwrap();
        assert!(kept.contains("\"credential\": \"relayer\""), "{kept}");
        // Two words side by side: one alone may well be in a file of keys ("secret", "key", "name" are words too).
        let each: Vec<&str> = words.split(' ').collect();
        let letters = kept.split(|c: char| !c.is_ascii_lowercase());
        let told: Vec<&str> = letters.filter(|w| !w.is_empty()).collect();
        for pair in each.windows(2) {
            assert!(!told.windows(2).any(|seen| seen == pair), "{kept}");
        }

        // It is the account that these words are anywhere else.
        let key = open("relayer", "relayer", handed()).unwrap();
        let same = LocalKey::from_mnemonic(&Mnemonic::parse(&words).unwrap(), DEFAULT_PATH).unwrap();
        assert_eq!(key.public_key(), same.public_key());
        for form in [
            STANDARD.encode(key.secret().as_ref()),
            hex::encode(key.secret().as_ref()),
        ] {
            assert!(!kept.contains(&form));
        }
        assert_eq!(info.address("wasm").unwrap(), same.address("wasm").unwrap());

        // This process has none.
        let told = keyring.signer("relayer", no_passphrase).unwrap_err().to_string();
        assert!(told.contains("LoadCredential=relayer"), "{told}");
        // It protects nothing that a passphrase could.
        let passphrase = || super::super::Passphrase::new("long enough".to_owned());
        let resealed = keyring.reseal(&passphrase(), &passphrase()).unwrap();
        assert_eq!((resealed.names().count(), resealed.done().len()), (0, 0));

        fs::write(folder.join("relayer"), "no words").unwrap();
        let bad = open("relayer", "relayer", handed()).unwrap_err();
        let told = bad.to_string();
        assert!(
            told.contains("credential \"relayer\" of key \"relayer\""),
            "{told}"
        );
    }

    #[test]
    fn a_credential_that_is_another_key_by_now_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let handed = || Some(dir.path().as_os_str().to_owned());
        let put = || {
            let words = Mnemonic::generate().unwrap().words();
            fs::write(dir.path().join("relayer"), words.as_bytes()).unwrap();
        };
        put();
        let keyring = Keyring::open(&dir.path().join("ring"), Backend::File).unwrap();
        let info = keyring.add_credential_of("relayer", "relayer", handed()).unwrap();
        let checked = || {
            let key = open("relayer", "relayer", handed()).unwrap();
            same(info.clone(), "relayer", key)
        };
        checked().unwrap();
        put();
        assert!(matches!(checked(), Err(KeyringError::OtherKey { .. })));
    }
}
