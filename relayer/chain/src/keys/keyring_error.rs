use std::path::PathBuf;

use super::error::KeyError;
use super::file::FileError;

/// Shortest passphrase that a new key may have.
pub(super) const MIN_PASSPHRASE: usize = 8;

/// A keyring's failure.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The directory or a file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// No such key.
    #[error("no key {name:?} in {dir}")]
    NotFound {
        /// Name asked for.
        name: String,
        /// Where.
        dir: PathBuf,
    },
    /// The name is taken.
    #[error("a key {0:?} exists already; choose another name")]
    Exists(String),
    /// Another call is changing it.
    #[error("{0}: another call is changing this keyring; run this again when that has ended")]
    Busy(PathBuf),
    /// Not a name.
    #[error("{0:?} is no key name: 1 to 32 of a-z A-Z 0-9 _ -")]
    Name(String),
    /// The file is not a key file.
    #[error("{0}: not a key file of this keyring, or damaged")]
    Format(PathBuf),
    /// The passphrase does not open the key.
    #[error("wrong passphrase for key {0:?}, or the file was changed")]
    Passphrase(String),
    /// A passphrase is needed and none was given.
    #[error(
        "key {0:?} is protected by a passphrase; name its file in VIRTENGINE_KEYRING_PASSPHRASE_FILE, or run in a terminal"
    )]
    PassphraseNeeded(String),
    /// Too short for a new key.
    #[error("the passphrase must have at least {MIN_PASSPHRASE} characters")]
    PassphraseShort,
    /// It is in an HSM, and this needs one that can be read.
    #[error("key {0:?} is in an HSM; the provider daemon signs with it, this program does not")]
    Elsewhere(String),
    /// It is a credential of the service manager's, which has not handed it over.
    #[error(
        "key {key:?} is the systemd credential {credential:?}, which is not there; let systemd start this with \
         LoadCredential={credential}:/path or LoadCredentialEncrypted={credential}:/path"
    )]
    Credential {
        /// Name of the key.
        key: String,
        /// Of the credential.
        credential: String,
    },
    /// No name of one.
    #[error("{0:?} is no credential's name: a file name, without a folder")]
    CredentialName(String),
    /// It holds no mnemonic.
    #[error(
        "the systemd credential {credential:?} of key {key:?} is not a BIP39 mnemonic: 12 to 24 English words with a valid \
         checksum are needed"
    )]
    CredentialWords {
        /// Name of the key.
        key: String,
        /// Of the credential.
        credential: String,
    },
    /// The credential holds another key than the keyring has on record.
    #[error(
        "the systemd credential {credential:?} is not key {key:?} any more; hand over the former one, or give the new one a \
         name of its own: keys add"
    )]
    OtherKey {
        /// Name of the key.
        key: String,
        /// Of the credential.
        credential: String,
    },
    /// The key itself.
    #[error(transparent)]
    Key(#[from] KeyError),
}
