use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Logs to standard error from here on.
pub(super) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.level).map_err(|e| anyhow::anyhow!("log.level: {e}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let started = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|e| anyhow::anyhow!("log: {e}"))
}
