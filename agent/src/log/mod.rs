//! Messages go to standard error, or to a file that is rotated by size.

mod aside;
mod rotated;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use self::aside::Aside;
use self::rotated::Rotated;
use crate::config::LoggingConfig;
use crate::files::FileError;

/// How long the end of the process waits for lines to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Changes level and file while the agent runs.
#[derive(Clone)]
pub struct LogHandle {
    level: reload::Handle<LevelFilter, tracing_subscriber::Registry>,
    lines: Arc<Aside>,
}

impl LogHandle {
    /// Takes over another configuration; a file that cannot be opened is said, and the former one stays in use.
    pub fn apply(&self, config: &LoggingConfig) {
        self.lines.open(config);
        // Fails only when the subscriber is gone, with the process.
        self.level.modify(|level| *level = config.level.into()).ok();
    }

    /// From here on nobody waits for the file: a thread writes to it while there are lines.
    pub fn aside(&self) {
        self.lines.aside();
    }

    /// Before the process ends or becomes another: what waits is written, to standard error where the file does not
    /// answer, and from here on each line at once.
    pub fn settle(&self) {
        self.lines.settle(LAST_LINES);
    }
}

impl std::fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogHandle")
    }
}

/// Starts logging for this process.
///
/// # Errors
/// The file cannot be opened.
pub fn start(config: &LoggingConfig) -> Result<LogHandle, FileError> {
    let lines = Arc::new(Aside::new(Sink(open(config)?)));
    let (filter, level) = reload::Layer::new(LevelFilter::from(config.level));
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(Target(Arc::clone(&lines)));
    // A second start in one process keeps the first.
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()
        .ok();
    Ok(LogHandle { level, lines })
}

fn open(config: &LoggingConfig) -> Result<Option<Rotated>, FileError> {
    config
        .file
        .as_ref()
        .map(|path| Rotated::open(path, config.max_size, config.max_backups))
        .transpose()
}

/// Where lines end.
#[derive(Debug)]
struct Sink(Option<Rotated>);

impl Sink {
    /// A full disk must not silence the agent: what the file does not take goes to standard error.
    fn write(&mut self, line: &[u8]) {
        let written = match &mut self.0 {
            Some(file) => file.write(line),
            None => io::stderr().write_all(line),
        };
        if written.is_err() && self.0.is_some() {
            io::stderr().write_all(line).ok();
        }
    }
}

/// Takes lines from the subscriber, each as a whole.
struct Target(Arc<Aside>);

impl<'a> MakeWriter<'a> for Target {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Write for Target {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
