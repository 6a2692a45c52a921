use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::output::{print, say};
use super::owner::as_owner_of;
use super::rotate::Rotate;
use super::store::StoreArguments;
use super::{Failure, Format, examples};
use crate::config::DEFAULT_KEY_PATH;
use crate::files::directory_of;
use crate::key::{KeyFileError, Store, attestation_key, describe, generate_in, migrate};

/// `keygen`.
#[derive(Debug, Args)]
pub(super) struct Keygen {
    /// Directory for agent.key and agent.pub; made if missing
    #[arg(long, default_value = "/etc/virtengine/node-agent/keys")]
    output_dir: PathBuf,
    /// Replace an existing key; the node must then be registered again
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    store: StoreArguments,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `key …`.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Print the public key of a private key file; with --output json also where the private one lives
    #[command(after_help = examples::KEY_SHOW)]
    Show {
        /// Private key file
        #[arg(long, default_value = DEFAULT_KEY_PATH)]
        key: PathBuf,
        /// Print how the provider knows the TPM that seals the key (virtengine-provider node-token create --attestation-key)
        #[arg(long)]
        attestation: bool,
        /// Form of the answer
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Move the key to another place: file or TPM; it stays the same key, and the node registered
    #[command(after_help = examples::KEY_MIGRATE)]
    Migrate {
        /// Private key file
        #[arg(long, default_value = DEFAULT_KEY_PATH)]
        key: PathBuf,
        #[command(flatten)]
        store: StoreArguments,
        /// Form of the answer
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Replace the registered key by a new one; the node keeps its state, a running agent goes on
    #[command(after_help = examples::KEY_ROTATE)]
    Rotate(Rotate),
}

fn failure(e: &KeyFileError) -> Failure {
    Failure::new(1, e)
}

impl Keygen {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        as_owner_of(&[&self.output_dir])?;
        let store = self.store.store()?.unwrap_or(Store::File);
        let made = generate_in(&self.output_dir, self.force, &store).map_err(|e| failure(&e))?;
        if self.output != Format::Text {
            let value = json!({
                "private_key": made.key_path, "public_key_file": made.public_path, "public_key": made.public,
            });
            return print(&value, self.output);
        }
        say!("private key: {}", made.key_path.display());
        say!("public key:  {}", made.public_path.display());
        say!("{}", made.public);
        Ok(ExitCode::SUCCESS)
    }
}

impl Key {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Show {
                key,
                attestation: true,
                output,
            } => show_attestation(&key, output),
            Self::Show { key, output, .. } => show(&key, output),
            Self::Migrate { key, store, output } => moved(&key, &store, output),
            Self::Rotate(rotate) => rotate.run(),
        }
    }
}

fn show(path: &Path, output: Format) -> Result<ExitCode, Failure> {
    as_owner_of(&[directory_of(path)])?;
    let (public, place) = describe(path).map_err(|e| failure(&e))?;
    if output != Format::Text {
        return print(
            &json!({"private_key": path, "public_key": public, "place": place}),
            output,
        );
    }
    say!("{public}");
    Ok(ExitCode::SUCCESS)
}

fn show_attestation(path: &Path, output: Format) -> Result<ExitCode, Failure> {
    as_owner_of(&[directory_of(path)])?;
    let (_, place) = describe(path).map_err(|e| failure(&e))?;
    let key = attestation_key(&place).map_err(|e| failure(&e))?;
    if output != Format::Text {
        return print(
            &json!({"private_key": path, "attestation_key": key, "place": place}),
            output,
        );
    }
    say!("{key}");
    Ok(ExitCode::SUCCESS)
}

fn moved(path: &Path, store: &StoreArguments, output: Format) -> Result<ExitCode, Failure> {
    as_owner_of(&[directory_of(path)])?;
    let store = store
        .store()?
        .ok_or_else(|| Failure::new(2, "--store says where the key is to live: file or tpm"))?;
    let place = migrate(path, &store).map_err(|e| match e {
        KeyFileError::RotationUnderWay { .. } | KeyFileError::Busy { .. } => Failure::new(2, e),
        e => failure(&e),
    })?;
    if output != Format::Text {
        return print(&json!({"private_key": path, "place": place}), output);
    }
    say!("{}: the key is now {place}", path.display());
    Ok(ExitCode::SUCCESS)
}
