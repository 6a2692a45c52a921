use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::output::say;
use crate::probe::gpu::report;

/// `probe-gpu`.
#[derive(Debug, Args)]
pub(super) struct ProbeGpu {
    /// NVIDIA's management library
    #[arg(long)]
    library: Option<PathBuf>,
}

impl ProbeGpu {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        say!(
            "{}",
            report(self.library.as_deref()).map_err(|e| Failure::new(1, e))?
        );
        Ok(ExitCode::SUCCESS)
    }
}
