//! Which mounted file system a path lies on, from `/proc/self/mounts`: nothing is asked of the file system itself.

use std::path::Path;

use crate::files::read_text;
use crate::probe::Roots;

/// More than any table of mounts.
const LIMIT: u64 = 1 << 20;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) device: String,
    pub(super) point: String,
    pub(super) kind: String,
}

/// The file system that `path` lies on.
pub(super) fn of(roots: &Roots, path: &Path) -> Option<Mount> {
    find(&read_text(&roots.proc.join("self/mounts"), LIMIT).ok()?, path)
}

/// The longest mount point above `path`; of several on one point the last, which hides the others.
fn find(table: &str, path: &Path) -> Option<Mount> {
    let all = table.lines().filter_map(|line| {
        let mut words = line.split(' ').map(unescaped);
        let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
        path.starts_with(&point).then_some(Mount { device, point, kind })
    });
    all.fold(None, |best: Option<Mount>, m| match best {
        Some(b) if b.point.len() > m.point.len() => Some(b),
        _ => Some(m),
    })
}

/// The kernel writes blank, tab, newline and backslash as octal.
fn unescaped(word: &str) -> String {
    word.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_above_a_path_is_its_file_system() {
        let table = "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\nnas:/a /data\\040x nfs rw 0 0\n\
                     /dev/vdb /data ext4 rw 0 0\n/dev/vdc /data xfs rw 0 0\n";
        let at = |path: &str| find(table, Path::new(path)).map(|m| (m.device, m.point, m.kind));
        let of = |d: &str, p: &str, k: &str| Some((d.to_owned(), p.to_owned(), k.to_owned()));
        assert_eq!(at("/var/lib"), of("/dev/vda", "/", "ext4"));
        assert_eq!(at("/data/scratch"), of("/dev/vdc", "/data", "xfs"));
        assert_eq!(at("/data x/y"), of("nas:/a", "/data x", "nfs"));
        assert_eq!(at("/database"), of("/dev/vda", "/", "ext4"));
    }
}
