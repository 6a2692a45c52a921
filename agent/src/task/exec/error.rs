use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hpc_schema::code::Code;

use crate::task::failure::Failure;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// An argument that the program could take for something else.
    #[error("{0:?} cannot be an argument: it begins with - or holds a zero byte")]
    Argument(String),
    /// The path is not absolute, or it cannot be started.
    #[error("{} cannot be started: {source}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ran into its time limit and was killed.
    #[error("{} did not end within {limit:?} and was killed", path.display())]
    Late {
        /// The program.
        path: PathBuf,
        /// Its time.
        limit: Duration,
    },
    /// The task was taken back, or its time is over; the program was killed.
    #[error("{} was killed: {failure}", path.display())]
    Stopped {
        /// The program.
        path: PathBuf,
        /// Why.
        failure: Failure,
    },
    /// It says no.
    #[error("{} failed ({status}): {message}", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// Exit code or signal.
        status: String,
        /// The end of its error output.
        message: String,
    },
}

impl From<ExecError> for Failure {
    fn from(e: ExecError) -> Self {
        match e {
            ExecError::Stopped { failure, .. } => failure,
            ExecError::Late { .. } => Self::new(Code::TaskTimeout, e),
            ExecError::Argument(_) => Self::new(Code::InvalidField, e),
            ExecError::Start { ref source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::new(Code::NotSupported, e)
            }
            e => Self::failed(e),
        }
    }
}
