//! A directory of keys: one JSON file each, named `<name>.key`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_hsm::Options;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::backend::Backend;
use super::credential::{self, CREDENTIALS_ENV};
use super::error::KeyError;
use super::file::{FileError, check_private_dir, read_private, write_private};
use super::hsm::Place;
use super::keyring_error::{KeyringError, MIN_PASSPHRASE};
use super::local::{LocalKey, address_of};
use super::seal::{self, OpenError, Passphrase, Sealed};
use super::signer::SharedSigner;

/// A key file is far smaller.
const MAX_FILE: u64 = 16 * 1024;

/// What may be shown of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInfo {
    /// Its name in the keyring.
    pub name: String,
    /// How its secret is stored.
    pub backend: Backend,
    /// Base64 of the compressed public key.
    pub public_key: String,
}

impl KeyInfo {
    /// The account's address.
    ///
    /// # Errors
    /// [`KeyringError::Key`] for a bad prefix.
    pub fn address(&self, prefix: &str) -> Result<String, KeyringError> {
        let bytes = STANDARD.decode(&self.public_key).map_err(|_| KeyError::Secret)?;
        let key = cosmrs::tendermint::PublicKey::from_raw_secp256k1(&bytes).ok_or(KeyError::Secret)?;
        Ok(address_of(key.into(), prefix)?)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyFile {
    version: u32,
    #[serde(flatten)]
    pub(super) info: KeyInfo,
    pub(super) secret: Secret,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Secret {
    Sealed(Sealed),
    Plain(String),
    Pkcs11(Place),
    /// Name of a systemd credential.
    Credential(String),
}

/// A keyring directory of mode 0700 with files of mode 0600.
#[derive(Debug, Clone)]
pub struct Keyring {
    dir: PathBuf,
    backend: Backend,
}

impl Keyring {
    /// Opens the directory, creating it if absent. The backend is used for new keys; each file knows its own.
    ///
    /// # Errors
    /// [`KeyringError::File`] if others may enter it.
    pub fn open(dir: &Path, backend: Backend) -> Result<Self, KeyringError> {
        check_private_dir(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            backend,
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stores a key under a new name. `passphrase` is asked only by the `file` backend.
    ///
    /// # Errors
    /// [`KeyringError::Exists`], [`KeyringError::PassphraseShort`], [`KeyringError::Busy`], …
    pub fn add(
        &self,
        name: &str,
        key: &LocalKey,
        passphrase: impl FnOnce() -> Result<Passphrase, KeyringError>,
    ) -> Result<KeyInfo, KeyringError> {
        let path = self.path(name)?;
        let _held = self.beside()?;
        if path.exists() {
            return Err(KeyringError::Exists(name.to_owned()));
        }
        let info = KeyInfo {
            name: name.to_owned(),
            backend: self.backend,
            public_key: STANDARD.encode(key.public_key()),
        };
        let secret = match self.backend {
            Backend::Test => Secret::Plain(STANDARD.encode(key.secret().as_ref())),
            Backend::File => {
                let passphrase = passphrase()?;
                if passphrase.chars() < MIN_PASSPHRASE {
                    return Err(KeyringError::PassphraseShort);
                }
                let sealed = seal::seal(&passphrase, &bound(&info), key.secret());
                Secret::Sealed(sealed.map_err(|_| KeyringError::Format(path.clone()))?)
            }
            Backend::Pkcs11 | Backend::Credential => return Err(KeyringError::Elsewhere(name.to_owned())),
        };
        write(&path, info, secret)
    }

    /// Stores under a new name where in an HSM a key is: one that it makes now and never gives out, or the one that it has
    /// under this `CKA_ID`.
    ///
    /// # Errors
    /// [`KeyringError::Exists`], [`KeyringError::Key`] with what the HSM says, …
    pub fn add_hsm(
        &self,
        name: &str,
        options: &Options,
        existing: Option<&[u8]>,
    ) -> Result<KeyInfo, KeyringError> {
        let path = self.path(name)?;
        let _held = self.beside()?;
        if path.exists() {
            return Err(KeyringError::Exists(name.to_owned()));
        }
        let (place, public) = Place::take(options, existing, &format!("virtengine {name}"))?;
        let info = KeyInfo {
            name: name.to_owned(),
            backend: Backend::Pkcs11,
            public_key: STANDARD.encode(public),
        };
        write(&path, info, Secret::Pkcs11(place))
    }

    /// A key for signing, wherever it is. An HSM is asked when there is something to sign.
    ///
    /// # Errors
    /// As [`Self::key`].
    pub fn signer(
        &self,
        name: &str,
        passphrase: impl FnOnce(&KeyInfo) -> Result<Passphrase, KeyringError>,
    ) -> Result<SharedSigner, KeyringError> {
        let path = self.path(name)?;
        let KeyFile { info, secret, .. } = self.read(&path, name)?;
        let Secret::Pkcs11(place) = secret else {
            return Ok(Arc::new(self.key(name, passphrase)?));
        };
        let public = STANDARD.decode(&info.public_key).ok();
        let public = public.and_then(|bytes| bytes.try_into().ok());
        Ok(Arc::new(place.signer(public.ok_or(KeyringError::Format(path))?)?))
    }

    /// Opens a key for signing that is in the keyring itself. `passphrase` is asked only for a sealed one.
    ///
    /// # Errors
    /// [`KeyringError::NotFound`], [`KeyringError::Passphrase`], [`KeyringError::Elsewhere`], …
    pub fn key(
        &self,
        name: &str,
        passphrase: impl FnOnce(&KeyInfo) -> Result<Passphrase, KeyringError>,
    ) -> Result<LocalKey, KeyringError> {
        let path = self.path(name)?;
        let KeyFile { info, secret, .. } = self.read(&path, name)?;
        let format = || KeyringError::Format(path.clone());
        let secret = match secret {
            Secret::Plain(text) => {
                let text = Zeroizing::new(text);
                let bytes = Zeroizing::new(STANDARD.decode(text.as_bytes()).map_err(|_| format())?);
                Zeroizing::new(bytes.as_slice().try_into().map_err(|_| format())?)
            }
            Secret::Pkcs11(_) => return Err(KeyringError::Elsewhere(name.to_owned())),
            Secret::Credential(credential) => {
                let folder = std::env::var_os(CREDENTIALS_ENV);
                return same(info, &credential, credential::open(name, &credential, folder)?);
            }
            Secret::Sealed(sealed) => {
                let passphrase = passphrase(&info)?;
                seal::open(&passphrase, &bound(&info), &sealed).map_err(|e| match e {
                    OpenError::Passphrase => KeyringError::Passphrase(name.to_owned()),
                    OpenError::Format => format(),
                })?
            }
        };
        let key = LocalKey::from_secret(&secret)?;
        if STANDARD.encode(key.public_key()) == info.public_key {
            Ok(key)
        } else {
            Err(format())
        }
    }

    /// What may be shown of one key.
    ///
    /// # Errors
    /// [`KeyringError::NotFound`].
    pub fn info(&self, name: &str) -> Result<KeyInfo, KeyringError> {
        Ok(self.read(&self.path(name)?, name)?.info)
    }

    /// All keys in order of their names.
    ///
    /// # Errors
    /// A file that cannot be read is named.
    pub fn list(&self) -> Result<Vec<KeyInfo>, KeyringError> {
        let io = |source| FileError::Io {
            path: self.dir.clone(),
            source,
        };
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|e| e == "key")
                && let Some(name) = path.file_stem().and_then(|n| n.to_str())
            {
                keys.push(self.read(&path, name)?.info);
            }
        }
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(keys)
    }

    /// Deletes a key's file. Whoever has not its words has lost it.
    ///
    /// # Errors
    /// [`KeyringError::NotFound`]; a file that is no key file stays.
    pub fn remove(&self, name: &str) -> Result<KeyInfo, KeyringError> {
        let path = self.path(name)?;
        let _held = self.beside()?;
        let info = self.read(&path, name)?.info;
        let io = |source| FileError::Io {
            path: path.clone(),
            source,
        };
        fs::remove_file(&path).map_err(io)?;
        fs::File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(io)?;
        Ok(info)
    }

    pub(super) fn read(&self, path: &Path, name: &str) -> Result<KeyFile, KeyringError> {
        if !path.exists() {
            return Err(KeyringError::NotFound {
                name: name.to_owned(),
                dir: self.dir.clone(),
            });
        }
        let bytes = Zeroizing::new(read_private(path, MAX_FILE)?);
        let file: KeyFile =
            serde_json::from_slice(&bytes).map_err(|_| KeyringError::Format(path.to_owned()))?;
        if file.version == 1 && file.info.name == name {
            Ok(file)
        } else {
            Err(KeyringError::Format(path.to_owned()))
        }
    }

    pub(super) fn path(&self, name: &str) -> Result<PathBuf, KeyringError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if name.is_empty() || name.len() > 32 || !name.bytes().all(plain) {
            return Err(KeyringError::Name(name.chars().take(64).collect()));
        }
        Ok(self.dir.join(format!("{name}.key")))
    }
}

pub(super) fn write(path: &Path, info: KeyInfo, secret: Secret) -> Result<KeyInfo, KeyringError> {
    let name = info.name.clone();
    let file = KeyFile {
        version: 1,
        info,
        secret,
    };
    let text = serde_json::to_vec_pretty(&file).map_err(|_| KeyringError::Format(path.to_owned()))?;
    match write_private(path, &Zeroizing::new(text), false) {
        Err(FileError::Exists { .. }) => Err(KeyringError::Exists(name)),
        other => Ok(other.map(|()| file.info)?),
    }
}

/// The key that a credential is, if it is the one on record.
pub(super) fn same(info: KeyInfo, credential: &str, key: LocalKey) -> Result<LocalKey, KeyringError> {
    if STANDARD.encode(key.public_key()) == info.public_key {
        return Ok(key);
    }
    Err(KeyringError::OtherKey {
        key: info.name,
        credential: credential.to_owned(),
    })
}

/// What a sealed secret is bound to: a file cannot be passed off as another key.
pub(super) fn bound(info: &KeyInfo) -> Vec<u8> {
    format!("virtengine-key-v1|{}|{}", info.name, info.public_key).into_bytes()
}
