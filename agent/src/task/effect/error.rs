use std::path::Path;

use hpc_schema::code::Code;

use crate::files::FileError;
use crate::task::exec::ExecError;
use crate::task::failure::Failure;

/// Why an effect was not done or not undone.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// Something that is not ours is in its place.
    #[error("{0}")]
    Busy(String),
    /// It cannot be established whose it is, or whether it is gone.
    #[error("{0}")]
    Unknown(String),
    /// IO.
    #[error(transparent)]
    File(#[from] FileError),
    /// A program.
    #[error(transparent)]
    Program(#[from] ExecError),
    /// The task has to end.
    #[error("{0}")]
    Stopped(Failure),
}

impl EffectError {
    pub(super) fn io(action: &'static str, path: &Path, e: rustix::io::Errno) -> Self {
        Self::File(crate::files::at(action, path)(e.into()))
    }
}

impl From<EffectError> for Failure {
    fn from(e: EffectError) -> Self {
        match e {
            EffectError::Busy(_) => Self::new(Code::ResourceBusy, e),
            EffectError::Unknown(_) => Self::new(Code::OutcomeUnknown, e),
            EffectError::Program(e) => e.into(),
            EffectError::Stopped(failure) => failure,
            EffectError::File(_) => Self::failed(e),
        }
    }
}
