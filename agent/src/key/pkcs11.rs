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
                pin_refused: matches!(e, HsmError::Pin(_)),
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

/// Bytes of a PIN's file: no device takes a longer one.
const MAX_PIN: usize = 256;

fn read(path: &Path, file: &mut fs::File) -> Result<Zeroizing<String>, KeyFileError> {
    use std::io::{Error, ErrorKind, Read as _};

    let at = crate::files::at("read", path);
    // One more, so that a longer one is told; no second buffer is left behind that holds it.
    let mut bytes = Zeroizing::new([0; MAX_PIN + 1]);
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(at(e).into()),
        }
    }
    if filled > MAX_PIN {
        return Err(KeyFileError::Device(format!(
            "{}: longer than {MAX_PIN} bytes; the file must hold the PIN and nothing else",
            path.display()
        )));
    }
    let text = bytes.get(..filled).and_then(|b| std::str::from_utf8(b).ok());
    match text {
        Some(text) => Ok(Zeroizing::new(text.to_owned())),
        None => Err(at(Error::new(ErrorKind::InvalidData, "not valid UTF-8")).into()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_for_a_pin_is_refused_and_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pin");
        let tried = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path, &mut fs::File::open(&path).unwrap())
        };
        let long = "1".repeat(MAX_PIN);
        assert_eq!(*tried(&long).unwrap(), long);
        for more in ["1", "é"] {
            let e = tried(&(long.clone() + more)).unwrap_err();
            assert!(e.to_string().contains("longer than 256 bytes"), "{e}");
        }
        fs::write(&path, [0xff]).unwrap();
        assert!(read(&path, &mut fs::File::open(&path).unwrap()).is_err());
    }
}
