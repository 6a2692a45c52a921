//! Users of the system, by its own list.

use std::path::Path;

use crate::files::{FileError, read_text};

/// User and group id of a name in `passwd`; none if there is no such user.
///
/// # Errors
/// IO.
pub fn find(etc: &Path, name: &str) -> Result<Option<(u32, u32)>, FileError> {
    let text = read_text(&etc.join("passwd"), 8 << 20)?;
    Ok(text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        found.then_some((uid, gid))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let text = "root:x:0:0:root:/root:/bin/bash\nvirtengine:x:990:991::/:/usr/sbin/nologin\nbroken\n";
        std::fs::write(dir.path().join("passwd"), text).unwrap();
        assert_eq!(find(dir.path(), "virtengine").unwrap(), Some((990, 991)));
        assert_eq!(find(dir.path(), "virt").unwrap(), None);
        assert_eq!(find(dir.path(), "broken").unwrap(), None);
    }
}
