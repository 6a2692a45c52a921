use std::io::IsTerminal as _;

use tracing_subscriber::reload;
use tracing_subscriber::{EnvFilter, Registry};

use crate::config::{Log, LogFormat};

/// Changes what is logged.
#[derive(Debug, Clone)]
pub(super) struct Level(Handle);

type Handle = reload::Handle<EnvFilter, Registry>;

impl Level {
    /// Logs at `level` from here on; says so if it cannot.
    pub(super) fn set(&self, level: &str) {
        let set = EnvFilter::try_new(level)
            .map_err(|e| e.to_string())
            .and_then(|filter| self.0.reload(filter).map_err(|e| e.to_string()));
        if let Err(error) = set {
            tracing::error!(%error, "log.level cannot be changed");
        }
    }
}

/// Logs to standard error from here on.
pub(super) fn start(log: &Log) -> anyhow::Result<Level> {
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
    use tracing_subscriber::util::SubscriberInitExt as _;
    let filter = EnvFilter::try_new(&log.level).map_err(|e| anyhow::anyhow!("log.level: {e}"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let lines = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|e| anyhow::anyhow!("log: {e}"))?;
    Ok(Level(handle))
}
