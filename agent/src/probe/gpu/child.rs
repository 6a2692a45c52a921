//! The child process that asks NVML, seen from both sides: `virtengine-node-agent probe-gpu` prints one line of JSON.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{GpuReport, nvml};
use crate::probe::tool::{Tool, ToolError};

/// Without the persistence daemon the driver wakes up eight GPUs first.
const DEADLINE: Duration = Duration::from_secs(10);
/// 64 GPUs at a kilobyte each.
const LIMIT: usize = 256 << 10;
/// The hidden subcommand.
pub const COMMAND: &str = "probe-gpu";

/// Starts the child.
#[derive(Debug)]
pub struct NvidiaProbe {
    tool: Tool,
    library: Option<PathBuf>,
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub enum NvidiaError {
    /// The child hangs, or says why it failed.
    #[error(transparent)]
    Child(#[from] ToolError),
    /// What it printed is no report.
    #[error("the GPU probe printed something else: {0}")]
    Report(#[from] serde_json::Error),
}

impl NvidiaError {
    /// In the words of the child, where it has found any.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Child(ToolError::Failed { message, .. }) if !message.is_empty() => {
                message.strip_prefix("error: ").unwrap_or(message).to_owned()
            }
            other => other.to_string(),
        }
    }
}

impl NvidiaProbe {
    /// Nothing is started yet. `program` is this executable; it is started by its inode, so that an update of the file
    /// on disk changes nothing for the running process.
    #[must_use]
    pub fn new(program: Option<&Path>, library: Option<PathBuf>) -> Self {
        let program = program.map_or_else(|| PathBuf::from("/proc/self/exe"), Path::to_owned);
        Self {
            tool: Tool::new(program, DEADLINE, LIMIT),
            library,
        }
    }

    /// Asks once.
    ///
    /// # Errors
    /// See [`NvidiaError`]. Also while an earlier child hangs in the kernel.
    pub fn read(&mut self) -> Result<GpuReport, NvidiaError> {
        let mut arguments = vec![OsString::from(COMMAND)];
        if let Some(library) = &self.library {
            arguments.push("--library".into());
            arguments.push(library.into());
        }
        Ok(serde_json::from_slice(&self.tool.run(&arguments)?)?)
    }
}

/// What the child does.
///
/// # Errors
/// Of NVML, in its words.
pub fn report(library: Option<&Path>) -> Result<String, String> {
    serde_json::to_string(&nvml::read(library)?).map_err(|e| e.to_string())
}
