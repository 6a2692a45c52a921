use std::io;
use std::time::Duration;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It cannot be started.
    #[error("{path} cannot be started: {source}")]
    Start {
        /// The program.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A pipe to it broke.
    #[error("{path}: {source}")]
    Io {
        /// The program.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Killed.
    #[error("{path} did not end within {deadline:?} and was killed")]
    Deadline {
        /// The program.
        path: String,
        /// Its time.
        deadline: Duration,
    },
    /// An earlier one hangs in the kernel.
    #[error("{path}: process {pid} was killed and does not end; it is stuck in the kernel")]
    Stuck {
        /// The program.
        path: String,
        /// The earlier process.
        pid: u32,
    },
    /// More than anybody expects of it.
    #[error("{path} printed more than {limit} bytes")]
    TooLong {
        /// The program.
        path: String,
        /// The bound.
        limit: usize,
    },
    /// It says no.
    #[error("{path} failed ({status}): {message}")]
    Failed {
        /// The program.
        path: String,
        /// Exit code or signal.
        status: String,
        /// The start of its error output.
        message: String,
    },
}
