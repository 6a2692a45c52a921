//! Messages go to standard error, or to a file that is rotated by size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LoggingConfig;
use crate::files::{FileError, at, create_directory, directory_of};

/// Changes level and file while the agent runs.
#[derive(Clone)]
pub struct LogHandle {
    level: reload::Handle<LevelFilter, tracing_subscriber::Registry>,
    target: Target,
}

impl LogHandle {
    /// Takes over another configuration.
    ///
    /// # Errors
    /// The file cannot be opened; the former one stays in use.
    pub fn apply(&self, config: &LoggingConfig) -> Result<(), FileError> {
        let file = open(config)?;
        *self.target.lock() = file;
        // Fails only when the subscriber is gone, with the process.
        self.level.modify(|level| *level = config.level.into()).ok();
        Ok(())
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
    let target = Target(Arc::new(Mutex::new(open(config)?)));
    let (filter, level) = reload::Layer::new(LevelFilter::from(config.level));
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(target.clone());
    // A second start in one process keeps the first.
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()
        .ok();
    Ok(LogHandle { level, target })
}

fn open(config: &LoggingConfig) -> Result<Option<Rotated>, FileError> {
    config
        .file
        .as_ref()
        .map(|path| Rotated::open(path, config.max_size, config.max_backups))
        .transpose()
}

#[derive(Clone)]
struct Target(Arc<Mutex<Option<Rotated>>>);

impl Target {
    fn lock(&self) -> MutexGuard<'_, Option<Rotated>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for Target {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Target {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.lock() {
            // A full disk must not silence the agent: what the file does not take goes to standard error.
            Some(file) => file.write(line).or_else(|_| io::stderr().write(line)),
            None => io::stderr().write(line),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.lock() {
            Some(file) => file.file.flush(),
            None => Ok(()),
        }
    }
}

/// `<file>`, `<file>.1` … `<file>.<max_backups>`, the newest with the lowest number.
struct Rotated {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    max_backups: u32,
}

impl Rotated {
    fn open(path: &Path, max_size: u64, max_backups: u32) -> Result<Self, FileError> {
        create_directory(directory_of(path))?;
        let file = append(path).map_err(at("open", path))?;
        let size = file.metadata().map_err(at("read", path))?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
            max_size,
            max_backups,
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(length) > self.max_size {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size = self.size.saturating_add(length);
        Ok(line.len())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let name = |n: u32| {
            let mut name = self.path.clone().into_os_string();
            if n > 0 {
                name.push(format!(".{n}"));
            }
            PathBuf::from(name)
        };
        for n in (0..self.max_backups).rev() {
            match std::fs::rename(name(n), name(n.saturating_add(1))) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        if self.max_backups == 0 {
            std::fs::remove_file(&self.path)?;
        }
        self.file = append(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_rotated_by_size_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log/agent.log");
        let mut log = Rotated::open(&path, 10, 2).unwrap();
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "four\n",
            "five-six-seven\n",
            "eight\n",
        ] {
            log.write(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join("log").join(name)).unwrap();
        assert_eq!(read("agent.log"), "eight\n");
        assert_eq!(read("agent.log.1"), "five-six-seven\n");
        assert_eq!(read("agent.log.2"), "four\n");
        assert_eq!(std::fs::read_dir(dir.path().join("log")).unwrap().count(), 3);
        // A restart goes on with the file.
        let log = Rotated::open(&path, 10, 2).unwrap();
        assert_eq!(log.size, 6);
    }

    #[test]
    fn without_backups_the_file_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let mut log = Rotated::open(&path, 5, 0).unwrap();
        log.write(b"four\n").unwrap();
        log.write(b"five\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "five\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
