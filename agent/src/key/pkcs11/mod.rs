//! The key in an HSM, by PKCS#11: made there, never seen here. The HSM's library runs in a process of its own
//! (`sign-pkcs11`), so that a device that hangs or a library that crashes costs a signature and nothing else.

mod device;
mod helper;
mod signer;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hpc_schema::key::AgentKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub use helper::{COMMAND, helper};
pub(super) use signer::HsmSigner;

use super::file::open_private;
use super::{KeyFileError, Place};
use crate::random;

/// Which HSM, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmOptions {
    /// The vendor's PKCS#11 library.
    pub module: PathBuf,
    /// Label of the token in it.
    pub token: String,
    /// File with the PIN, 0600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_file: Option<PathBuf>,
    /// Name of a systemd credential (`LoadCredential=`) with the PIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_credential: Option<String>,
}

/// A key in an HSM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HsmKey {
    pub(super) public_key: AgentKey,
    #[serde(flatten)]
    pub(super) options: HsmOptions,
    /// `CKA_ID` of both halves, lower-case hex.
    id: String,
}

impl HsmKey {
    pub(super) fn place(&self) -> Place {
        Place::Pkcs11 {
            module: self.options.module.clone(),
            token: self.options.token.clone(),
            id: self.id.clone(),
        }
    }

    fn id(&self) -> Result<Vec<u8>, KeyFileError> {
        hex::decode(&self.id).map_err(|_| KeyFileError::Device("the key file's id is not hex".into()))
    }
}

impl HsmOptions {
    /// The HSM makes a key pair that cannot leave it.
    pub(super) fn make(&self) -> Result<HsmKey, KeyFileError> {
        let id: [u8; 16] = random::bytes().map_err(KeyFileError::Random)?;
        let device = device::Device::open(self, &self.pin()?, true)?;
        let public_key = device.generate(&id)?;
        Ok(HsmKey {
            public_key,
            options: self.clone(),
            id: hex::encode(id),
        })
    }

    fn pin(&self) -> Result<Zeroizing<String>, KeyFileError> {
        let text = match (&self.pin_file, &self.pin_credential) {
            (Some(path), None) => open_private(path).and_then(|mut file| read(path, &mut file))?,
            (None, Some(name)) => credential(name)?,
            _ => {
                return Err(KeyFileError::Device(
                    "the HSM's PIN comes from a file (--pin-file) or a systemd credential (--pin-credential), one of them"
                        .into(),
                ));
            }
        };
        Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

fn read(path: &Path, file: &mut fs::File) -> Result<Zeroizing<String>, KeyFileError> {
    use std::io::Read as _;

    let mut text = Zeroizing::new(String::with_capacity(256));
    file.take(256)
        .read_to_string(&mut text)
        .map_err(crate::files::at("read", path))?;
    Ok(text)
}

/// systemd guards the folder; only a mode that everybody can read would be wrong.
fn credential(name: &str) -> Result<Zeroizing<String>, KeyFileError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(KeyFileError::Device(format!(
            "{name:?} is no name of a credential"
        )));
    }
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(|| {
        KeyFileError::Device(format!(
            "there are no credentials; start the agent by systemd with LoadCredential={name}:/path"
        ))
    })?;
    let path = Path::new(&folder).join(name);
    let mut file = fs::File::open(&path).map_err(crate::files::at("read", &path))?;
    let mode = file.metadata().map_err(crate::files::at("read", &path))?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(KeyFileError::Mode {
            path: path.display().to_string(),
            mode,
        });
    }
    read(&path, &mut file)
}
