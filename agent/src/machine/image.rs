//! Base images: a regular file below one of the allowed directories, reached without a link, written by nobody but root
//! and this agent, and of the digest that was asked for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use hpc_schema::task::ImageFormat;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use sha2::{Digest, Sha256};

use super::qcow2;

/// Why an image is not used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Elsewhere.
    #[error(
        "image_path: {path} is in none of the allowed directories ({allowed}); put it there, or name its directory in machines.image_directories of the policy"
    )]
    Outside {
        /// What was asked for.
        path: String,
        /// Where images may be.
        allowed: String,
    },
    /// Not there, a link on the way, not readable.
    #[error("image_path: {path}: {source}; links are not followed")]
    Open {
        /// What was asked for.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("image_path: {path} is no regular file")]
    Kind {
        /// What was asked for.
        path: String,
    },
    /// Others could change it after it was checked.
    #[error(
        "image_path: {path} can be changed by others than root and the agent; chown root and chmod go-w {path}"
    )]
    Writable {
        /// The file or a directory on its way.
        path: String,
    },
    /// It is not what was asked for.
    #[error("image_sha256: {path} has the digest {found}")]
    Digest {
        /// What was asked for.
        path: String,
        /// What it has.
        found: String,
    },
    /// Its header.
    #[error("image_path: {path} {source}")]
    Format {
        /// What was asked for.
        path: String,
        /// What is wrong.
        source: qcow2::Qcow2Error,
    },
    /// Told to stop.
    #[error("cancelled")]
    Cancelled,
}

/// An image that was opened and not yet read.
#[derive(Debug)]
pub struct Image {
    /// Its path without links, as QEMU will open it.
    pub path: PathBuf,
    file: File,
}

/// Finds an image below one of `allowed`.
///
/// # Errors
/// See [`ImageError`].
pub fn open(path: &str, allowed: &[PathBuf]) -> Result<Image, ImageError> {
    let asked = Path::new(path);
    let outside = || ImageError::Outside {
        path: path.to_owned(),
        allowed: allowed
            .iter()
            .map(|a| a.display().to_string())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let failed = |source: io::Error| ImageError::Open {
        path: path.to_owned(),
        source,
    };
    // Only plain names behind the directory: `..` would be a lie in any message, and the kernel is asked beneath it anyhow.
    let plain = |rest: &Path| {
        rest.components().next().is_some() && rest.components().all(|c| matches!(c, Component::Normal(_)))
    };
    let (dir, rest) = allowed
        .iter()
        .find_map(|dir| Some((dir, asked.strip_prefix(dir).ok().filter(|r| plain(r))?)))
        .ok_or_else(outside)?;
    // The configured directory itself may be a link: the administrator named it.
    let real = std::fs::canonicalize(dir).map_err(failed)?;
    let folder: OwnedFd = rustix::fs::open(
        &real,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| failed(e.into()))?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // NONBLOCK: a pipe must not hold us.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(openat2(&folder, rest, flags, Mode::empty(), how).map_err(|e| failed(e.into()))?);
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(ImageError::Kind {
            path: path.to_owned(),
        });
    }
    // QEMU opens it by its path again: nobody else may be able to put another file there.
    for above in real.ancestors().skip(1) {
        passable(above)?;
    }
    let mut at = real;
    guarded(&at)?;
    for part in rest.components() {
        at.push(part);
        guarded(&at)?;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let again =
        openat2(CWD, &at, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(|e| failed(e.into()))?;
    let again = File::from(again).metadata().map_err(failed)?;
    if (again.dev(), again.ino()) != (meta.dev(), meta.ino()) {
        return Err(failed(io::Error::other("was replaced while it was opened")));
    }
    Ok(Image { path: at, file })
}

/// A folder above: nobody else may be able to put another one in the place of ours. Where everybody writes and takes away
/// only what is their own, as in `/tmp`, ours stays.
fn passable(path: &Path) -> Result<(), ImageError> {
    let sticky = std::fs::symlink_metadata(path).is_ok_and(|m| m.uid() == 0 && m.mode() & 0o1000 != 0);
    if sticky { Ok(()) } else { guarded(path) }
}

/// Owned by root or this process, and not for others to write.
fn guarded(path: &Path) -> Result<(), ImageError> {
    let shown = || path.display().to_string();
    let meta = std::fs::symlink_metadata(path).map_err(|source| ImageError::Open {
        path: shown(),
        source,
    })?;
    let ours = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
    if ours && meta.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(ImageError::Writable { path: shown() })
    }
}

impl Image {
    /// Reads it once: digest and header of the same bytes. Gives its virtual size in bytes.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn verify(
        &mut self,
        sha256: &str,
        format: ImageFormat,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<u64, ImageError> {
        let path = self.path.display().to_string();
        let failed = |source| ImageError::Open {
            path: path.clone(),
            source,
        };
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut header = Vec::with_capacity(qcow2::HEADER);
        let mut hash = Sha256::new();
        let mut length = 0u64;
        let mut buffer = vec![0u8; 1 << 20];
        loop {
            if cancelled() {
                return Err(ImageError::Cancelled);
            }
            let n = match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(failed(e)),
            };
            let read = buffer.get(..n).unwrap_or_default();
            let wanted = qcow2::HEADER.saturating_sub(header.len());
            header.extend(read.iter().take(wanted));
            hash.update(read);
            length = length.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
        }
        let found = hex::encode(hash.finalize());
        if found != sha256 {
            return Err(ImageError::Digest { path, found });
        }
        let size = match format {
            ImageFormat::Qcow2 => qcow2::virtual_size(&header),
            ImageFormat::Raw if qcow2::is_qcow2(&header) => Err(qcow2::Qcow2Error::NotRaw),
            ImageFormat::Raw if length == 0 => Err(qcow2::Qcow2Error::Size(0)),
            // A disk is whole sectors.
            ImageFormat::Raw => Ok(length.div_ceil(512).saturating_mul(512)),
        };
        size.map_err(|source| ImageError::Format { path, source })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn sha(bytes: &[u8]) -> String {
        hex::encode(Sha256::digest(bytes))
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        fs::create_dir_all(images.join("deep")).unwrap();
        for d in [&images, &images.join("deep")] {
            fs::set_permissions(d, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in ["a.raw", "deep/b.raw"] {
            fs::write(images.join(name), [7u8; 700]).unwrap();
            fs::set_permissions(images.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        (dir, images)
    }

    fn try_open(images: &Path, path: &Path) -> Result<Image, ImageError> {
        open(path.to_str().unwrap(), &[images.to_owned()])
    }

    #[test]
    fn an_image_below_an_allowed_directory_is_opened_and_its_digest_checked() {
        let (_dir, images) = place();
        for name in ["a.raw", "deep/b.raw"] {
            let mut image = try_open(&images, &images.join(name)).unwrap();
            let size = image
                .verify(&sha(&[7u8; 700]), ImageFormat::Raw, &|| false)
                .unwrap();
            assert_eq!(size, 1024);
            let e = image.verify(&sha(b"x"), ImageFormat::Raw, &|| false).unwrap_err();
            assert!(matches!(e, ImageError::Digest { .. }));
            let e = image
                .verify(&sha(&[7u8; 700]), ImageFormat::Qcow2, &|| false)
                .unwrap_err();
            assert!(e.to_string().contains("is no qcow2 image"), "{e}");
            assert!(matches!(
                image.verify(&sha(b"x"), ImageFormat::Raw, &|| true),
                Err(ImageError::Cancelled)
            ));
        }
    }

    #[test]
    fn no_path_leaves_the_allowed_directories() {
        let (dir, images) = place();
        fs::write(dir.path().join("secret"), "s").unwrap();
        symlink(dir.path().join("secret"), images.join("link")).unwrap();
        symlink(dir.path(), images.join("up")).unwrap();
        symlink("a.raw", images.join("inner")).unwrap();
        for (path, expected) in [
            (dir.path().join("secret"), "none of the allowed"),
            (images.join("../secret"), "none of the allowed"),
            (images.join("deep/../../secret"), "none of the allowed"),
            (images.clone(), "none of the allowed"),
            (dir.path().join("images-other/a"), "none of the allowed"),
            ("/etc/passwd".into(), "none of the allowed"),
            (images.join("link"), "links are not followed"),
            (images.join("inner"), "links are not followed"),
            (images.join("up/secret"), "links are not followed"),
            (images.join("missing"), "No such file"),
            (images.join("deep"), "no regular file"),
        ] {
            let e = try_open(&images, &path).unwrap_err().to_string();
            assert!(e.contains(expected), "{}: {e}", path.display());
        }
    }

    #[test]
    fn an_image_that_others_can_change_is_refused() {
        let (dir, images) = place();
        let chmod = |p: &Path, mode| fs::set_permissions(p, fs::Permissions::from_mode(mode)).unwrap();
        chmod(&images.join("a.raw"), 0o664);
        let e = try_open(&images, &images.join("a.raw")).unwrap_err().to_string();
        assert!(e.contains("chmod go-w"), "{e}");
        chmod(&images.join("a.raw"), 0o644);
        chmod(&images.join("deep"), 0o777);
        assert!(matches!(
            try_open(&images, &images.join("deep/b.raw")),
            Err(ImageError::Writable { .. })
        ));
        assert!(try_open(&images, &images.join("a.raw")).is_ok());
        // Whoever can rename a folder above can put another image there.
        chmod(dir.path(), 0o777);
        let e = try_open(&images, &images.join("a.raw")).unwrap_err();
        assert!(matches!(e, ImageError::Writable { .. }), "{e}");
        chmod(dir.path(), 0o755);
        assert!(try_open(&images, &images.join("a.raw")).is_ok());
    }

    #[test]
    fn a_pipe_in_the_directory_does_not_hold_the_agent() {
        let (_dir, images) = place();
        let pipe = images.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert!(matches!(try_open(&images, &pipe), Err(ImageError::Kind { .. })));
    }
}
