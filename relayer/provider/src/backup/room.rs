//! Whether the disk has room for the copy of the store that a backup begins with: the daemon works on the same one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::archive::BackupError;

/// What is left to the daemon, whose database's journal alone may grow by half of it meanwhile.
const LEFT: u64 = 128 << 20;

/// What may still be written where this lies, in bytes; no bound is known of a file system that reports no size.
pub(super) fn free(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    if disk.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Refuses a backup for whose copy of so many bytes the directory's disk, with so many free, has no room; nor for the
/// backup itself where it goes to the same disk.
pub(super) fn check(home: &Path, output: &Path, copy: u64, free: u64) -> Result<(), BackupError> {
    let beside = on_disk_of(home, output);
    let needed = copy
        .saturating_mul(if beside { 2 } else { 1 })
        .saturating_add(LEFT);
    if free >= needed {
        return Ok(());
    }
    let (what, remedy) = if beside {
        (
            "a copy of the store and the backup",
            "name a file on another disk, ",
        )
    } else {
        ("a copy of the store", "")
    };
    Err(BackupError::Room(format!(
        "{}: {what} need {} MiB there, and {} MiB are free: make room, {remedy}or keep less (store.history)",
        home.display(),
        needed.div_ceil(1 << 20),
        free >> 20,
    )))
}

/// Whether the file is made on the disk that the directory is on; one that cannot be made anywhere says so itself.
fn on_disk_of(home: &Path, output: &Path) -> bool {
    // That of a bare name is "".
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty());
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    device(home).is_some_and(|dev| device(folder.unwrap_or(Path::new("."))) == Some(dev))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_needs_room_for_the_copy_and_for_itself_where_it_goes_to_the_same_disk() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().join("site.backup");
        // A file system of its own.
        let away = Path::new("/proc/site.backup");
        let size = 30 << 30;
        for (output, needed) in [(here.as_path(), 2 * size + LEFT), (away, size + LEFT)] {
            check(dir.path(), output, size, needed).unwrap();
            let refused = check(dir.path(), output, size, needed - 1).unwrap_err();
            let said = refused.to_string();
            assert!(said.contains(&format!("{} MiB", needed >> 20)), "{said}");
            assert!(said.contains("store.history"), "{said}");
            assert_eq!(said.contains("another disk"), output != away, "{said}");
        }
        assert!((1..u64::MAX).contains(&free(dir.path()).unwrap()));
        assert_eq!(free(Path::new("/proc")).unwrap(), u64::MAX, "it reports no size");
    }
}
