//! Space of the file system that holds a configured path.

use std::path::Path;

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storage {
    /// Size.
    pub total: u64,
    /// What an ordinary user can still write.
    pub available: u64,
    /// What is in use.
    pub used: u64,
}

/// Asks the kernel (`statvfs`). May hang on a dead file server: call it from a supervised collector only.
#[must_use]
pub fn read(path: &Path) -> Option<Storage> {
    let s = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(s.f_frsize);
    if s.f_blocks == 0 {
        return None;
    }
    Some(Storage {
        total: bytes(s.f_blocks),
        available: bytes(s.f_bavail.min(s.f_bfree)),
        used: bytes(s.f_blocks.saturating_sub(s.f_bfree)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_agree_with_df() {
        let out = std::process::Command::new("df")
            .args(["--block-size=1", "--output=size,used,avail", "/"])
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let df: Vec<u64> = text
            .lines()
            .nth(1)
            .unwrap()
            .split_whitespace()
            .map(|w| w.parse().unwrap())
            .collect();
        let ours = read(Path::new("/")).unwrap();
        assert_eq!(ours.total, df[0]);
        // Others write meanwhile.
        assert!(ours.used.abs_diff(df[1]) < 1 << 28);
        assert!(ours.available.abs_diff(df[2]) < 1 << 28);
        assert_eq!(read(Path::new("/no/such/path")), None);
    }
}
