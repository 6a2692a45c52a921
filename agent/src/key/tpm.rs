//! The seed sealed by a TPM 2.0: no TPM has Ed25519, so the TPM guards the seed and the agent signs. Unsealed once, at
//! the start. By the programs of tpm2-tools, so that nothing of it is linked or loaded where there is no TPM; secrets go
//! over pipes, encrypted between program and TPM. See docs/adr/0009-keys-in-devices.md.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::key::AgentKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{KeyFileError, NodeKey, Place, Signer, Signing};
use crate::probe::tool::{Tool, find};
use crate::random;

/// A discrete TPM takes a second or two to make its primary key.
const DEADLINE: Duration = Duration::from_secs(20);
/// Sealed blobs and seeds are far smaller.
const LIMIT: usize = 4096;

/// Which TPM, and under which of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TpmOptions {
    /// How tpm2-tools reach it (`TPM2TOOLS_TCTI`).
    pub tcti: String,
    /// Handle of a persistent storage key, such as `0x81000001`; none: the owner hierarchy's primary key, made anew each
    /// time from the TPM's own seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl TpmOptions {
    /// The kernel's resource manager.
    pub const DEFAULT_TCTI: &'static str = "device:/dev/tpmrm0";
}

/// A sealed seed; worth nothing without the TPM that sealed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sealed {
    pub(super) public_key: AgentKey,
    #[serde(flatten)]
    pub(super) options: TpmOptions,
    /// Base64 of TPM2B_PUBLIC.
    sealed_public: String,
    /// Base64 of TPM2B_PRIVATE.
    sealed_private: String,
}

impl Sealed {
    pub(super) fn place(&self) -> Place {
        Place::Tpm2 {
            tcti: self.options.tcti.clone(),
            parent: self.options.parent.clone(),
        }
    }
}

/// An unsealed key.
#[derive(Debug)]
pub(super) struct Unsealed {
    key: NodeKey,
    place: Place,
}

impl Unsealed {
    pub(super) fn into_key(self) -> NodeKey {
        self.key
    }
}

impl Signer for Unsealed {
    fn public(&self) -> AgentKey {
        self.key.public()
    }

    fn place(&self) -> Place {
        self.place.clone()
    }

    fn sign<'a>(&'a self, message: &'a [u8]) -> Signing<'a> {
        Signer::sign(&self.key, message)
    }
}

/// Seals the key's seed, and unseals it once to be sure.
pub(super) fn seal(key: &NodeKey, options: &TpmOptions) -> Result<Sealed, KeyFileError> {
    let mut tpm = Tpm::open(options)?;
    let (public, private) = (tpm.path("seal.pub"), tpm.path("seal.priv"));
    let (parent, session) = (tpm.parent.clone(), tpm.session());
    tpm.run(
        "tpm2_create",
        &[
            "-Q", "-C", &parent, "-P", &session, "-i", "-", "-u", &public, "-r", &private,
        ],
        key.seed(),
    )?;
    let read = |path: &str| {
        fs::read(path)
            .map(|bytes| STANDARD.encode(bytes))
            .map_err(|e| KeyFileError::Device(format!("tpm2_create wrote no {path}: {e}")))
    };
    let sealed = Sealed {
        public_key: key.public(),
        options: options.clone(),
        sealed_public: read(&public)?,
        sealed_private: read(&private)?,
    };
    drop(tpm);
    unseal(&sealed)?;
    Ok(sealed)
}

/// The key, in memory from now on.
pub(super) fn unseal(sealed: &Sealed) -> Result<Unsealed, KeyFileError> {
    let mut tpm = Tpm::open(&sealed.options)?;
    let (public, private, object) = (
        tpm.path("seal.pub"),
        tpm.path("seal.priv"),
        tpm.path("object.ctx"),
    );
    for (path, text) in [
        (&public, &sealed.sealed_public),
        (&private, &sealed.sealed_private),
    ] {
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| KeyFileError::Device("the key file's sealed blob is not base64".into()))?;
        fs::write(path, bytes).map_err(|e| KeyFileError::Device(format!("{path}: {e}")))?;
    }
    let (parent, session) = (tpm.parent.clone(), tpm.session());
    tpm.run(
        "tpm2_load",
        &["-Q", "-C", &parent, "-u", &public, "-r", &private, "-c", &object],
        &[],
    )?;
    let seed = tpm.run("tpm2_unseal", &["-Q", "-c", &object, "-p", &session], &[])?;
    let key = <[u8; 32]>::try_from(seed.as_slice())
        .ok()
        .map(Zeroizing::new)
        .and_then(|seed| NodeKey::from_seed(*seed))
        .filter(|key| key.public() == sealed.public_key)
        .ok_or_else(|| KeyFileError::Device("what the TPM unseals is not this key".into()))?;
    Ok(Unsealed {
        key,
        place: sealed.place(),
    })
}

/// A TPM with a parent key and a session that encrypts what passes between program and chip.
pub(super) struct Tpm {
    tcti: String,
    folder: PathBuf,
    parent: String,
    /// Without the kernel's resource manager, what was loaded stays until it is flushed.
    flush: bool,
}

impl Tpm {
    /// With nothing loaded.
    pub(super) fn reach(tcti: &str) -> Result<Self, KeyFileError> {
        let name: [u8; 16] = random::bytes().map_err(KeyFileError::Random)?;
        let folder = std::env::temp_dir().join(format!("virtengine-tpm-{}", hex::encode(name)));
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|e| KeyFileError::Device(format!("{}: {e}", folder.display())))?;
        Ok(Self {
            tcti: tcti.to_owned(),
            parent: String::new(),
            flush: !tcti.contains("tpmrm") && !tcti.starts_with("tabrmd"),
            folder,
        })
    }

    fn open(options: &TpmOptions) -> Result<Self, KeyFileError> {
        let mut tpm = Self::reach(&options.tcti)?;
        tpm.parent = match &options.parent {
            Some(handle) => handle.clone(),
            None => {
                let primary = tpm.path("primary.ctx");
                tpm.run(
                    "tpm2_createprimary",
                    &["-Q", "-C", "o", "-G", "ecc", "-c", &primary],
                    &[],
                )?;
                primary
            }
        };
        let (parent, session) = (tpm.parent.clone(), tpm.path("session.ctx"));
        // Salted with the parent: who listens on the bus cannot derive its keys.
        tpm.run(
            "tpm2_startauthsession",
            &["-Q", "--hmac-session", "-c", &parent, "-S", &session],
            &[],
        )?;
        tpm.run(
            "tpm2_sessionconfig",
            &["-Q", &session, "--enable-encrypt", "--enable-decrypt"],
            &[],
        )?;
        Ok(tpm)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn session(&self) -> String {
        format!("session:{}", self.path("session.ctx"))
    }

    pub(super) fn run(
        &mut self,
        program: &str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
        let printed = Zeroizing::new(self.tool(program)?.feed(arguments, input).map_err(|e| {
            KeyFileError::Device(format!(
                "the TPM ({}) does not do what it is asked: {e}; check that the agent's user may open it (group tss) and that it has not been cleared",
                self.tcti
            ))
        })?);
        if self.flush {
            // Nothing loaded: as good as flushed.
            self.tool("tpm2_flushcontext")?.run(&["-Q", "-t"]).ok();
        }
        Ok(printed)
    }

    fn tool(&self, program: &str) -> Result<Tool, KeyFileError> {
        let path = find(program, None).ok_or_else(|| {
            KeyFileError::Device(format!("{program} is not installed; apt-get install tpm2-tools"))
        })?;
        Ok(Tool::new(path, DEADLINE, LIMIT).with("TPM2TOOLS_TCTI", self.tcti.clone()))
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        let session = self.path("session.ctx");
        if Path::new(&session).exists()
            && let Ok(mut tool) = self.tool("tpm2_flushcontext")
        {
            tool.run(&["-Q", &session]).ok();
        }
        fs::remove_dir_all(&self.folder).ok();
    }
}
