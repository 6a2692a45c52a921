//! The process that speaks with the gateway.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::super::{ConfigArguments, Failure, runtime};
use crate::config::Config;
use crate::log;
use crate::task::jail::Jail;
use crate::task::link;

/// The process that speaks with the gateway.
#[derive(Debug, Args)]
pub(in crate::cli) struct TaskLink {
    #[command(flatten)]
    config: ConfigArguments,
}

impl TaskLink {
    pub(in crate::cli) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.config.load()?;
        jailed(&link_jail(&config))?;
        log::start(&config.logging).map_err(|e| Failure::new(2, format_args!("logging.file: {e}")))?;
        let runtime = runtime()?;
        let result = runtime.block_on(Box::pin(link::serve_pipes(config)));
        runtime.shutdown_background();
        result.map_err(|e| Failure::new(1, e))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Enters a jail for good.
pub(super) fn jailed(jail: &Jail) -> Result<(), Failure> {
    let refused = |e| {
        Failure::new(
            1,
            format_args!("the kernel refuses the jail of this process: {e}"),
        )
    };
    jail.enter().map(drop).map_err(refused)
}

/// What the link reads, by folder: certificates are replaced by new files.
fn link_jail(config: &Config) -> Jail {
    let folder = |file: &Path| crate::files::directory_of(file).to_owned();
    let tls = &config.tls;
    let certificates = [&tls.ca_cert, &tls.client_cert, &tls.client_key];
    let mut ports: Vec<u16> = config.endpoints.iter().map(|e| e.port).collect();
    // Names, where an answer does not fit into a datagram.
    ports.push(53);
    Jail::Link {
        reads: certificates
            .map(|f| folder(f))
            .into_iter()
            .chain([config.state_dir.clone()])
            .collect(),
        writes: config.logging.file.iter().map(|f| folder(f)).collect(),
        ports,
    }
}
