//! The key in an HSM, by PKCS#11: made there, never seen here. `hpc-hsm` speaks with it, in a process of its own
//! (`sign-pkcs11`).

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use hpc_hsm::{Curve, HsmError, Key, Session};
use hpc_schema::key::{AgentKey, Verifier as _, ZebraVerifier};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub use hpc_hsm::{COMMAND, Options as HsmOptions};

use super::private::open_private;
use super::{KeyFileError, Place, Signer, Signing, SigningError};
use crate::random;

/// Secrets that are not the child's to know.
const NOT_ITS_BUSINESS: &[&str] = &[
    "VIRTENGINE_NODE_AGENT_REGISTRATION_TOKEN",
    "NODE_AGENT_BOOTSTRAP_TOKEN",
];

/// A key in an HSM, as its file has it.
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
}

/// The HSM makes a key pair that cannot leave it.
pub(super) fn make(options: &HsmOptions) -> Result<HsmKey, KeyFileError> {
    let id: [u8; 16] = random::bytes().map_err(KeyFileError::Random)?;
    let device = |e: HsmError| KeyFileError::Device(e.to_string());
    let public = hpc_hsm::make(
        options,
        &pin(options)?,
        Curve::Ed25519,
        &id,
        "virtengine-node-agent",
    );
    let public = <[u8; 32]>::try_from(public.map_err(device)?).ok();
    Ok(HsmKey {
        public_key: public
            .and_then(|bytes| AgentKey::from_bytes(bytes).ok())
            .ok_or_else(|| KeyFileError::Device("the HSM's public key is no sound Ed25519 key".into()))?,
        options: options.clone(),
        id: hex::encode(id),
    })
}

/// The child's side.
///
/// # Errors
/// The HSM's, in its words.
pub fn helper(input: impl BufRead, output: impl Write) -> Result<(), String> {
    hpc_hsm::serve(input, output, |options| pin(options).map_err(|e| e.to_string()))
}

/// A key in an HSM, to be used.
#[derive(Debug)]
pub(super) struct HsmSigner {
    key: HsmKey,
    session: Session,
}

impl HsmSigner {
    /// Nothing is started before the first signature.
    pub(super) fn new(key: HsmKey) -> Self {
        let public = key.public_key;
        let check = move |message: &[u8], signature: &[u8]| {
            let signature = <[u8; 64]>::try_from(signature).ok()?;
            ZebraVerifier
                .verify(message, &signature, public.as_bytes())
                .then_some(signature)
        };
        let in_hsm = Key {
            curve: Curve::Ed25519,
            public: hex::encode(public.as_bytes()),
            options: key.options.clone(),
            id: key.id.clone(),
        };
        Self {
            key,
            session: Session::new(in_hsm, Arc::new(check), NOT_ITS_BUSINESS),
        }
    }
}

impl Signer for HsmSigner {
    fn public(&self) -> AgentKey {
        self.key.public_key
    }

    fn place(&self) -> Place {
        self.key.place()
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Signing<'a> {
        Box::pin(async move {
            self.session.sign(message).await.map_err(|e| SigningError {
                place: self.place().to_string(),
                message: e.to_string(),
            })
        })
    }
}

fn pin(options: &HsmOptions) -> Result<Zeroizing<String>, KeyFileError> {
    let text = match (&options.pin_file, &options.pin_credential) {
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
