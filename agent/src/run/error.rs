use crate::files::FileError;
use crate::key::KeyFileError;
use crate::register::OtherNode;
use crate::sequence::SequenceError;
use crate::uplink::TlsError;

/// Why the agent cannot run. Trouble with the gateway is never among them.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The counter cannot be used.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Not registered yet.
    #[error("this node is not registered; run: virtengine-node-agent register --config …")]
    NotRegistered,
    /// The configuration names another node than the one that is registered.
    #[error(transparent)]
    OtherNode(#[from] OtherNode),
    /// Another agent runs on this state.
    #[error(
        "another agent runs on {path}; two would use the same sequence numbers: stop it, or set another agent.state_dir"
    )]
    Running {
        /// The state directory.
        path: String,
    },
}
