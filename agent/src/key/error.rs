use crate::files::FileError;

/// Why a key cannot be used. Each message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such file.
    #[error(
        "{path} does not exist; make a key with virtengine-node-agent keygen --output-dir {dir}, or correct the path"
    )]
    Missing {
        /// The key file.
        path: String,
        /// Its directory.
        dir: String,
    },
    /// Others may read the private key.
    #[error("{path}: mode {mode:o} lets others read it; chmod 600 {path}")]
    Mode {
        /// The key file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else could replace the key.
    #[error("{path}: owned by uid {owner}, the agent runs as uid {euid}; chown {euid} {path}")]
    Owner {
        /// The key file.
        path: String,
        /// Its owner.
        owner: u32,
        /// Our effective user.
        euid: u32,
    },
    /// Neither PKCS#8 PEM of an Ed25519 key nor base64 of a 32-byte seed.
    #[error(
        "{path}: not an Ed25519 private key (PKCS#8 PEM, base64 of the 32-byte seed, or JSON that says where the key lives)"
    )]
    Format {
        /// The key file.
        path: String,
    },
    /// `keygen` never overwrites by itself.
    #[error("{path} exists; a new key needs a new registration: use --force if that is what you want")]
    Exists {
        /// The key file.
        path: String,
    },
    /// The kernel gave no randomness.
    #[error("no randomness from the kernel: {0}")]
    Random(std::io::Error),
    /// Neither the present key nor one to come is the registered one.
    #[error(
        "{path} holds {present}, the node is registered with {registered}; restore that key, or register again with a new token"
    )]
    NotRegistered {
        /// The key file.
        path: String,
        /// Base64 of the key in it.
        present: String,
        /// Base64 of the key on record.
        registered: String,
    },
    /// A TPM or HSM cannot be used; says why and what to do.
    #[error("{0}")]
    Device(String),
    /// To or from an HSM.
    #[error(
        "a key is not moved into an HSM or out of one: the HSM makes its own; replace the key with: virtengine-node-agent key rotate --store …"
    )]
    Immovable,
    /// Another process holds the lock.
    #[error(
        "{path}: another command, or the running agent, is changing this node's keys; wait a moment and give the same command again"
    )]
    Busy {
        /// The key file.
        path: String,
    },
    /// There is a key to come, and it lives elsewhere than the place that was named.
    #[error(
        "{path} holds the key to come, {place}; --store names another place. Go on without --store, or give that key up first: virtengine-node-agent key rotate --abandon"
    )]
    OtherStore {
        /// The file of the key to come.
        path: String,
        /// Where that key lives.
        place: String,
    },
    /// The rotation that was to be given up has come to its end.
    #[error(
        "{path} holds the key that the node is registered with by now; it is not given up. Give the same command again: it takes the place of the former one"
    )]
    NextRegistered {
        /// The file of the key to come.
        path: String,
    },
    /// A key that a rotation may put in the place of the present one at any time.
    #[error(
        "{path} holds the key to come of a rotation, and would take the place of the moved one; end that first (virtengine-node-agent key rotate --token-file …), or give it up (--abandon)"
    )]
    RotationUnderWay {
        /// The file of the key to come.
        path: String,
    },
    /// The file has got another key since it was read.
    #[error(
        "{path} holds another key by now; nothing is moved: look at it with virtengine-node-agent key show"
    )]
    Changed {
        /// The key file.
        path: String,
    },
    /// Not a file: a directory, device or pipe.
    #[error("{path}: not a regular file")]
    NotAFile {
        /// The key file.
        path: String,
    },
}

/// Why nothing was signed. The next attempt may succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent's key does not sign ({place}): {message}")]
pub struct SigningError {
    /// Where the key lives.
    pub place: String,
    /// What is wrong, and what to do.
    pub message: String,
    /// The HSM does not take the PIN: whoever tries that again locks its token.
    pub pin_refused: bool,
}
