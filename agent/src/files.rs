//! Files that must survive a crash and must not be read by others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

/// In the state directory of a node that is registered.
pub(crate) const REGISTRATION_FILE: &str = "registration.json";

/// An IO error with the path it happened on.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {source}")]
pub struct FileError {
    /// What was tried: `read`, `write`, …
    pub action: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// Names action and path of an IO error.
pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Whether an existing file may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// An existing file is an error (`AlreadyExists`), decided by the kernel, not by a look beforehand.
    Never,
    /// An existing file is replaced in one step.
    Yes,
}

/// Whether the bytes must be on the disk before the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Both file and directory are synchronised.
    Synced,
    /// Only replaced in one step: a power cut may bring the old content back.
    Atomic,
}

/// Writes a whole file so that a reader sees the old or the new content, never a part.
///
/// A file written by root belongs to the owner of its directory, so that `sudo … register` leaves files that the
/// service's user can read.
///
/// # Errors
/// IO, or `AlreadyExists` with [`Replace::Never`].
pub fn write(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    replace: Replace,
    durability: Durability,
) -> Result<(), FileError> {
    write_for(None, path, bytes, mode, replace, durability)
}

/// A user and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Owner {
    /// Of an existing file.
    ///
    /// # Errors
    /// IO.
    pub fn of(path: &Path) -> Result<Self, FileError> {
        let meta = fs::metadata(path).map_err(at("read", path))?;
        Ok(Self {
            uid: meta.uid(),
            gid: meta.gid(),
        })
    }
}

/// As [`fn@write`]; when running as root, the file belongs to `owner`, by default that of its directory.
///
/// # Errors
/// IO, or `AlreadyExists` with [`Replace::Never`].
pub fn write_for(
    owner: Option<Owner>,
    path: &Path,
    bytes: &[u8],
    mode: u32,
    replace: Replace,
    durability: Durability,
) -> Result<(), FileError> {
    let dir = directory_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    let result = write_temporary(&temporary, dir, owner, bytes, mode, durability)
        .and_then(|()| match replace {
            Replace::Yes => fs::rename(&temporary, path),
            Replace::Never => fs::hard_link(&temporary, path).and_then(|()| fs::remove_file(&temporary)),
        })
        .and_then(|()| {
            if durability == Durability::Synced {
                File::open(dir)?.sync_all()
            } else {
                Ok(())
            }
        });
    if result.is_err() {
        // Best effort: the error that matters is the first one.
        fs::remove_file(&temporary).ok();
    }
    result.map_err(at("write", path))
}

fn write_temporary(
    temporary: &Path,
    dir: &Path,
    owner: Option<Owner>,
    bytes: &[u8],
    mode: u32,
    durability: Durability,
) -> io::Result<()> {
    // A leftover of a crashed process with our id; create_new must not trip over it.
    match fs::remove_file(temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(temporary)?;
    // The umask may have taken bits away.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    if rustix::process::geteuid().is_root() {
        let owner = match owner {
            Some(owner) => owner,
            None => fs::metadata(dir).map(|m| Owner {
                uid: m.uid(),
                gid: m.gid(),
            })?,
        };
        std::os::unix::fs::fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    file.write_all(bytes)?;
    if durability == Durability::Synced {
        file.sync_all()
    } else {
        Ok(())
    }
}

/// Creates a directory (mode 0750) and what is missing above it; root gives it to the owner of the nearest
/// directory that was there before.
///
/// # Errors
/// IO.
pub fn create_directory(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    // The ancestors of a relative path end in "", which is the working directory.
    let above = || {
        path.ancestors().map(|p| {
            if p.as_os_str().is_empty() {
                Path::new(".")
            } else {
                p
            }
        })
    };
    let existing = above().find(|p| p.is_dir()).unwrap_or(Path::new("/")).to_owned();
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o750);
    builder
        .recursive(true)
        .create(path)
        .map_err(at("create directory", path))?;
    if rustix::process::geteuid().is_root() {
        let owner = fs::metadata(&existing).map_err(at("read", &existing))?;
        for made in above().take_while(|p| *p != existing) {
            // The directory that was made, and not what a link that took its place leads to.
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle =
                open(made, flags, Mode::empty()).map_err(|e| at("open directory", made)(e.into()))?;
            std::os::unix::fs::fchown(handle, Some(owner.uid()), Some(owner.gid()))
                .map_err(at("change owner of", made))?;
        }
    }
    Ok(())
}

/// The directory a file lies in; `.` for a bare name.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// Makes a rename in the directory of `path` last.
///
/// # Errors
/// IO.
pub fn sync_directory_of(path: &Path) -> Result<(), FileError> {
    let dir = directory_of(path);
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(at("synchronise", dir))
}

/// Reads a file of at most `limit` bytes as text.
///
/// # Errors
/// IO, not UTF-8, or longer than `limit`.
pub fn read_text(path: &Path, limit: u64) -> Result<String, FileError> {
    let read = || {
        // Room for what is usual, or the library tries with a few bytes first.
        let mut text = String::with_capacity(1024);
        File::open(path)?
            .take(limit.saturating_add(1))
            .read_to_string(&mut text)?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > limit {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("longer than {limit} bytes"),
            ));
        }
        Ok(text)
    };
    read().map_err(at("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_with_its_mode_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"one", 0o600, Replace::Never, Durability::Synced).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let e = write(&path, b"two", 0o600, Replace::Never, Durability::Synced).unwrap_err();
        assert_eq!(e.source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write(&path, b"two", 0o640, Replace::Yes, Durability::Atomic).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_root_writes_belongs_to_the_owner_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let mut owner = rustix::process::geteuid().as_raw();
        if owner == 0 {
            owner = 4711;
            std::os::unix::fs::chown(dir.path(), Some(owner), Some(owner)).unwrap();
        }
        let deep = dir.path().join("x/y");
        create_directory(&deep).unwrap();
        let path = deep.join("a");
        write(&path, b"one", 0o600, Replace::Never, Durability::Synced).unwrap();
        for p in [dir.path().join("x"), deep, path] {
            assert_eq!(fs::metadata(&p).unwrap().uid(), owner, "{}", p.display());
        }
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        assert!(read_text(&path, 4).is_err());
    }
}
