//! Where a key is to live, as flags.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Failure;
use crate::key::{HsmOptions, Store, TpmOptions};

/// Kinds of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// In the key file
    File,
    /// In the key file, sealed by a TPM 2.0 (needs tpm2-tools)
    Tpm,
    /// In an HSM
    Pkcs11,
}

/// Where the key is to live.
#[derive(Debug, Clone, Args)]
pub(super) struct StoreArguments {
    /// Where the key is to live
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// How tpm2-tools reach the TPM
    #[arg(long, default_value = TpmOptions::DEFAULT_TCTI)]
    tpm_tcti: String,
    /// Persistent storage key of the TPM, such as 0x81000001 [default: the owner hierarchy's primary key]
    #[arg(long)]
    tpm_parent: Option<String>,
    /// The HSM's PKCS#11 library
    #[arg(long)]
    pkcs11_module: Option<PathBuf>,
    /// Label of the HSM's token
    #[arg(long)]
    pkcs11_token: Option<String>,
    /// File with the HSM's PIN, mode 600
    #[arg(long, conflicts_with = "pin_credential")]
    pin_file: Option<PathBuf>,
    /// systemd credential with the HSM's PIN (LoadCredential=)
    #[arg(long)]
    pin_credential: Option<String>,
}

impl StoreArguments {
    /// The place that was named, if one was.
    pub(super) fn store(&self) -> Result<Option<Store>, Failure> {
        let Some(kind) = self.store else { return Ok(None) };
        let missing = |flag| Failure::new(2, format_args!("{flag} is needed with --store pkcs11"));
        Ok(Some(match kind {
            Kind::File => Store::File,
            Kind::Tpm => Store::Tpm(TpmOptions {
                tcti: self.tpm_tcti.clone(),
                parent: self.tpm_parent.clone(),
            }),
            Kind::Pkcs11 => {
                let module = self
                    .pkcs11_module
                    .clone()
                    .ok_or_else(|| missing("--pkcs11-module"))?;
                if !module.is_absolute() {
                    return Err(Failure::new(2, "--pkcs11-module must be an absolute path"));
                }
                if self.pin_file.is_none() && self.pin_credential.is_none() {
                    return Err(missing("--pin-file or --pin-credential"));
                }
                Store::Pkcs11(HsmOptions {
                    module,
                    token: self
                        .pkcs11_token
                        .clone()
                        .ok_or_else(|| missing("--pkcs11-token"))?,
                    pin_file: self.pin_file.clone(),
                    pin_credential: self.pin_credential.clone(),
                })
            }
        }))
    }
}
