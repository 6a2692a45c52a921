use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::files::{FileError, at, create_directory, directory_of};

/// `<file>`, `<file>.1` … `<file>.<max_backups>`, the newest with the lowest number.
#[derive(Debug)]
pub(super) struct Rotated {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    max_backups: u32,
}

impl Rotated {
    pub(super) fn open(path: &Path, max_size: u64, max_backups: u32) -> Result<Self, FileError> {
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

    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(length) > self.max_size {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size = self.size.saturating_add(length);
        Ok(())
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
