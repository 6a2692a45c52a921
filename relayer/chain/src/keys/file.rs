//! Files that only their owner may read: written whole and synced, or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// A private file or directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Others may read or change it.
    #[error("{path}: others may access it (mode {mode:04o}); run: chmod {want:o} {path}")]
    Mode {
        /// Which.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What they should be.
        want: u32,
    },
    /// It belongs to somebody else.
    #[error(
        "{path}: belongs to user id {owner}, not to the present user {user}; {}",
        owner_remedy(path, *owner, *user)
    )]
    Owner {
        /// Which.
        path: PathBuf,
        /// Owner's user id.
        owner: u32,
        /// Ours.
        user: u32,
    },
    /// It is a link, or no regular file or directory.
    #[error("{path}: must be a regular {kind}, not a link")]
    Kind {
        /// Which.
        path: PathBuf,
        /// `file` or `directory`.
        kind: &'static str,
    },
    /// It holds more than it may: something else than the secret, or not that alone.
    #[error("{path}: longer than {limit} bytes; the file must hold the secret and nothing else")]
    TooLong {
        /// Which.
        path: PathBuf,
        /// What it may have.
        limit: u64,
    },
    /// It exists and must not be overwritten.
    #[error("{path}: exists already")]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Another user's file is that user's to work with; only what root has left among a user's own changes hands.
fn owner_remedy(path: &Path, owner: u32, user: u32) -> String {
    match owner {
        0 => format!("run, as root: chown {user} {}", path.display()),
        _ => format!("run this as that user: sudo -u '#{owner}' …"),
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { path, source }
}

/// Creates the directory with mode 0700 if it is absent, and refuses one that others may enter.
///
/// # Errors
/// [`FileError::Mode`], [`FileError::Owner`], [`FileError::Kind`], [`FileError::Io`].
pub fn check_private_dir(path: &Path) -> Result<(), FileError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => check(path, &meta, 0o700),
        Ok(_) => Err(FileError::Kind {
            path: path.to_owned(),
            kind: "directory",
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(parent)
                    .map_err(io_error(parent))?;
            }
            DirBuilder::new().mode(0o700).create(path).map_err(io_error(path))
        }
        Err(e) => Err(io_error(path)(e)),
    }
}

/// Reads a file of mode 0600 (or stricter) that belongs to the present user and has at most `limit` bytes.
///
/// # Errors
/// As [`check_private_dir`]; [`FileError::TooLong`].
pub fn read_private(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let meta = fs::symlink_metadata(path).map_err(io_error(path))?;
    if !meta.is_file() {
        return Err(FileError::Kind {
            path: path.to_owned(),
            kind: "file",
        });
    }
    // Checked again on the opened file: the name may point elsewhere by now.
    let file = File::open(path).map_err(io_error(path))?;
    check(path, &file.metadata().map_err(io_error(path))?, 0o600)?;
    read_whole(file, path, limit)
}

/// Reads a credential of the service manager, of at most `limit` bytes. Owner and mode are the manager's affair: nobody else
/// gets at the folder.
///
/// # Errors
/// [`FileError::TooLong`], [`FileError::Io`].
pub fn read_credential(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    read_whole(File::open(path).map_err(io_error(path))?, path, limit)
}

/// A secret that was cut would be another one.
fn read_whole(file: File, path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Zeroizing::new(Vec::new());
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    let read = u64::try_from(read.map_err(io_error(path))?).unwrap_or(u64::MAX);
    if read > limit {
        return Err(FileError::TooLong {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(std::mem::take(&mut *bytes))
}

/// Writes a file of mode 0600: to a temporary name, synced, put in place, the directory synced.
///
/// # Errors
/// [`FileError::Exists`] unless `replace`; [`FileError::Io`].
pub fn write_private(path: &Path, bytes: &[u8], replace: bool) -> Result<(), FileError> {
    let written = Written::new(path, bytes)?;
    if replace {
        return written.replace();
    }
    // A link fails where a rename would overwrite; the temporary name goes with `written`.
    match fs::hard_link(&written.temporary, path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(FileError::Exists {
            path: path.to_owned(),
        }),
        linked => {
            linked.map_err(io_error(path))?;
            drop(written);
            sync(path)
        }
    }
}

/// A private file that is on disk whole, and not in its place yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Written {
    temporary: PathBuf,
    path: PathBuf,
}

impl Written {
    /// For this place.
    pub(super) fn new(path: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let written = Self {
            temporary: path.with_file_name(name),
            path: path.to_owned(),
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let put = options.open(&written.temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        put.map_err(io_error(path))?;
        Ok(written)
    }

    /// Puts it in the place of what is there, durably.
    pub(super) fn replace(self) -> Result<(), FileError> {
        fs::rename(&self.temporary, &self.path).map_err(io_error(&self.path))?;
        sync(&self.path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // Best effort: it holds nothing that was announced, and is not there once it has its place.
        fs::remove_file(&self.temporary).ok();
    }
}

/// Syncs the directory of a file.
pub(super) fn sync(path: &Path) -> Result<(), FileError> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))
        .and_then(|dir| dir.sync_all())
        .map_err(io_error(path))
}

fn check(path: &Path, meta: &fs::Metadata, want: u32) -> Result<(), FileError> {
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::Mode {
            path: path.to_owned(),
            mode,
            want,
        });
    }
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        return Err(FileError::Owner {
            path: path.to_owned(),
            owner: meta.uid(),
            user,
        });
    }
    Ok(())
}
