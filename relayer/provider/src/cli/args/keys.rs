use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use hpc_chain::keys::HsmOptions;
use hpc_schema::id::ClusterId;

use crate::config::Span;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum KeysCommand {
    /// Lists chain keys and their addresses.
    List,
    /// Shows a chain key: operator or relayer.
    Show {
        /// Name of the key.
        name: String,
        /// Only the address.
        #[arg(long)]
        address: bool,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Makes another chain key, beside the others and sealed like them, or in an HSM; or takes one that systemd keeps.
    #[command(after_help = "Examples:\n  virtengine-provider keys add relayer-2\n  \
        systemd-run --pipe --wait --collect --uid=virtengine -p LoadCredentialEncrypted=relayer-2:/etc/credstore.encrypted/relayer-2 \\\n    \
        virtengine-provider keys add relayer-2 --store credential --key-credential relayer-2")]
    Add {
        /// Name of the key.
        name: String,
        /// File with a mnemonic to take the key from, mode 0600.
        #[arg(long)]
        import: Option<PathBuf>,
        #[command(flatten)]
        place: PlaceArgs,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Prints the address of a chain key.
    Address {
        /// Name of the key.
        name: String,
        /// Bech32 prefix, if the configuration names no contract yet.
        #[arg(long, default_value = "wasm")]
        prefix: String,
    },
    /// Gives a cluster another key that signs its commands and tasks: the old one signs the new one, the chain gets it, nodes
    /// follow. Broken off, it is gone on with by the next call.
    RotateTask {
        /// The cluster.
        #[arg(long)]
        cluster_id: ClusterId,
    },
    /// Seals the chain keys that a passphrase protects with another one; a daemon that runs goes on with what it has opened.
    /// Broken off, it is gone on with by the next call.
    #[command(
        after_help = "Examples:\n  VIRTENGINE_KEYRING_PASSPHRASE_FILE=former virtengine-provider keys passphrase --new next\n  \
        systemd-run --pipe --wait --collect --uid=virtengine -p LoadCredential=keyring-passphrase:/etc/virtengine/passphrase \\\n    \
        -p LoadCredential=next:/etc/virtengine/passphrase.next virtengine-provider keys passphrase --new-credential next"
    )]
    Passphrase {
        /// File with the new passphrase, mode 0600.
        #[arg(long, value_name = "FILE", required_unless_present = "new_credential")]
        new: Option<PathBuf>,
        /// Name of a systemd credential with the new passphrase.
        #[arg(long, value_name = "NAME", conflicts_with = "new")]
        new_credential: Option<String>,
    },
    /// Makes another key that signs registration tokens; running gateways take it up, and the former one's tokens count on for
    /// the overlap. Broken off, it is gone on with by the next call.
    #[command(after_help = "Examples:\n  virtengine-provider keys rotate-token\n  \
        virtengine-provider keys rotate-token --overlap 0s   # the former key has leaked\n\n\
        A leak that is noticed later, during the overlap: remove keys/token.former and run virtengine-provider reload.")]
    RotateToken {
        /// How long tokens of the former key are taken, if they have not expired, up to 30 days.
        #[arg(long, default_value = "720h")]
        overlap: Span,
    },
    /// Prints the public key that signs a cluster's commands and tasks, for its record on chain; makes the
    /// key if there is none.
    Task {
        /// The cluster.
        #[arg(long)]
        cluster_id: ClusterId,
    },
}

/// Where a new chain key lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Place {
    /// In the keyring.
    Keyring,
    /// In an HSM, which makes it and never gives it out.
    Pkcs11,
    /// With systemd, which hands it over at each start as a credential.
    Credential,
}

/// Where a new chain key lives, and how the daemon gets at it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct PlaceArgs {
    /// Where the key is to live.
    #[arg(long, value_enum, default_value = "keyring")]
    store: Place,
    /// The HSM's PKCS#11 library.
    #[arg(long, value_name = "FILE", required_if_eq("store", "pkcs11"))]
    pkcs11_module: Option<PathBuf>,
    /// Label of the token in it.
    #[arg(long, value_name = "LABEL", required_if_eq("store", "pkcs11"))]
    pkcs11_token: Option<String>,
    /// The key pair that the HSM has under this `CKA_ID` already, in hex; else it makes one.
    #[arg(long, value_name = "HEX")]
    pkcs11_id: Option<String>,
    /// File with the token's PIN, mode 0600.
    #[arg(long, value_name = "FILE", conflicts_with = "pin_credential")]
    pin_file: Option<PathBuf>,
    /// Name of a systemd credential with the token's PIN.
    #[arg(long, value_name = "NAME")]
    pin_credential: Option<String>,
    /// Name of the systemd credential that is the key: a mnemonic.
    #[arg(long, value_name = "NAME", required_if_eq("store", "credential"))]
    key_credential: Option<String>,
}

/// What says where a key is to live, and is of another place than the one named.
#[derive(Debug, thiserror::Error)]
#[error("{flag} is for --store {place}; name both or neither")]
pub(in crate::cli) struct Misplaced {
    flag: &'static str,
    place: &'static str,
}

impl PlaceArgs {
    /// A key must not come to lie elsewhere than somebody thinks.
    ///
    /// # Errors
    /// [`Misplaced`].
    pub(in crate::cli) fn check(&self) -> Result<(), Misplaced> {
        let of_hsm = [
            ("--pkcs11-module", self.pkcs11_module.is_some()),
            ("--pkcs11-token", self.pkcs11_token.is_some()),
            ("--pkcs11-id", self.pkcs11_id.is_some()),
            ("--pin-file", self.pin_file.is_some()),
            ("--pin-credential", self.pin_credential.is_some()),
        ];
        let of_systemd = [("--key-credential", self.key_credential.is_some())];
        let first =
            |flags: &[(&'static str, bool)]| flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag);
        let wrong = [
            (Place::Pkcs11, "pkcs11", first(&of_hsm)),
            (Place::Credential, "credential", first(&of_systemd)),
        ];
        let mut wrong = wrong.into_iter().filter(|(of, ..)| *of != self.store);
        let found = wrong.find_map(|(_, place, flag)| flag.map(|flag| Misplaced { flag, place }));
        found.map_or(Ok(()), Err)
    }

    /// The systemd credential that is the key, if it is one.
    pub(in crate::cli) fn credential(&self) -> Option<&str> {
        let name = self.key_credential.as_deref();
        name.filter(|_| self.store == Place::Credential)
    }

    /// The HSM, and the key's id in it if it is there already; none: the keyring.
    ///
    /// # Errors
    /// If an id is no hex, or a path cannot be made absolute.
    pub(in crate::cli) fn hsm(&self) -> anyhow::Result<Option<(HsmOptions, Option<Vec<u8>>)>> {
        let (Place::Pkcs11, Some(module), Some(token)) =
            (self.store, &self.pkcs11_module, &self.pkcs11_token)
        else {
            return Ok(None);
        };
        let id = self.pkcs11_id.as_deref().map(hex::decode).transpose();
        let options = HsmOptions {
            module: std::path::absolute(module)?,
            token: token.clone(),
            pin_file: self.pin_file.as_ref().map(std::path::absolute).transpose()?,
            pin_credential: self.pin_credential.clone(),
        };
        Ok(Some((options, id.context("--pkcs11-id")?)))
    }
}
