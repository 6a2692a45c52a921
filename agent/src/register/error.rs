use std::time::Duration;

use hpc_schema::refusal::Refusal;

use super::{CsrError, OtherNode};
use crate::config::Config;
use crate::files::FileError;
use crate::key::{KeyFileError, SigningError};
use crate::uplink::{IdentityError, IssuedError, MOST_CAS, TlsError};

/// How a registration did not end.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Neither registered nor a token to do it with.
    #[error(
        "no registration token; have one made (virtengine-provider node-token create --pubkey …) and set agent.registration_token or agent.registration_token_file"
    )]
    NoToken,
    /// Not registered, and the file that should hold the token is not there.
    #[error(
        "agent.registration_token_file: {path} does not exist, and a node that is not registered needs its token; put it there (virtengine-provider node-token create --pubkey …), or name the right file"
    )]
    TokenFileMissing {
        /// The file.
        path: String,
    },
    /// Without a token the gateway's CA must be known, and the file that should name it does not.
    #[error(
        "provider_daemon.tls.ca_cert: {path} holds {held} CA certificates. A node that is recognised by its key, without a token, needs the gateway's there (PEM; the one to come beside it while it changes, {most} at most); any other node needs a token (virtengine-provider node-token create --pubkey …)",
        most = MOST_CAS
    )]
    NoCa {
        /// The file.
        path: String,
        /// How many it holds.
        held: usize,
    },
    /// The token cannot be used by this node; nothing was sent.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Registered, and as another node than the configuration names.
    #[error(transparent)]
    OtherNode(#[from] OtherNode),
    /// The gateway said no with a code of its own.
    #[error("the gateway refused: {code}: {message}")]
    RefusedByGateway {
        /// The code's word.
        code: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// The key does not bring the registration back.
    #[error("the registration is lost here and the agent's key does not recover it: {message}")]
    NotRecovered {
        /// The gateway knows the node not at all, or with another key.
        stranger: bool,
        /// The code's word.
        code: String,
        /// What the gateway says.
        message: String,
    },
    /// The gateway answers something that cannot be right.
    #[error("the gateway's answer cannot be used: {0}")]
    BadAnswer(String),
    /// Not within the time given.
    #[error(
        "not registered within {waited:?}: {last}; check provider_daemon.endpoint and that the gateway runs there, then register again"
    )]
    TimedOut {
        /// How long it was tried.
        waited: Duration,
        /// What stood in the way last.
        last: String,
    },
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key files cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The key does not sign.
    #[error(transparent)]
    Signing(#[from] SigningError),
    /// No randomness.
    #[error("no randomness from the kernel: {0}")]
    Random(std::io::Error),
    /// The certificate request failed.
    #[error(transparent)]
    Csr(#[from] CsrError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What came back is no usable certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// What came back is another node's, or another CA's.
    #[error("the gateway's answer cannot be used: {0}")]
    Issued(#[from] IssuedError),
}

impl RegisterError {
    /// Why there is no token.
    pub(crate) fn no_token(config: &Config) -> Self {
        config
            .token_file_missing
            .as_ref()
            .map_or(Self::NoToken, |path| Self::TokenFileMissing {
                path: path.display().to_string(),
            })
    }

    /// Whether repeating the same command may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Whether the gateway said so.
    #[must_use]
    pub fn is_refusal(&self, code: hpc_schema::code::Code) -> bool {
        matches!(self, Self::RefusedByGateway { code: word, .. } if word == code.as_str())
    }
}
