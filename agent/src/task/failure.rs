use std::fmt;

use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;

use crate::files::FileError;

/// Why a task was not done: goes into its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The stable code.
    pub code: Code,
    /// For people: what, and what to do about it.
    pub detail: String,
}

impl Failure {
    /// With this code.
    #[must_use]
    pub fn new(code: Code, detail: impl fmt::Display) -> Self {
        Self {
            code,
            detail: detail.to_string(),
        }
    }

    /// A handler could not do its work.
    #[must_use]
    pub fn failed(detail: impl fmt::Display) -> Self {
        Self::new(Code::TaskFailed, detail)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Failure {}

impl From<Refusal> for Failure {
    fn from(r: Refusal) -> Self {
        Self::new(r.code, r.message)
    }
}

impl From<FileError> for Failure {
    fn from(e: FileError) -> Self {
        Self::failed(e)
    }
}
