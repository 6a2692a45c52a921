//! Users and groups of this host as its files have them. A tenant's user is looked for in the files alone: what a
//! directory service knows is not the agent's to make or to take away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::files::{FileError, read_text};

/// More than any of these files.
const LIMIT: u64 = 64 << 20;

/// One line of `passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Login name.
    pub name: String,
    /// Its id.
    pub uid: u32,
    /// Its group's id.
    pub gid: u32,
    /// Name and such of a person; the mark, if the entry is ours.
    pub comment: String,
    /// Its home.
    pub home: String,
}

/// Every user.
///
/// # Errors
/// IO.
pub fn entries(etc: &Path) -> Result<Vec<Entry>, FileError> {
    let text = read_text(&etc.join("passwd"), LIMIT)?;
    Ok(text.lines().filter_map(entry).collect())
}

fn entry(line: &str) -> Option<Entry> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let comment = fields.next()?.to_owned();
    let home = fields.next()?.to_owned();
    Some(Entry {
        name,
        uid,
        gid,
        comment,
        home,
    })
}

/// Every group with its id.
///
/// # Errors
/// IO.
pub fn groups(etc: &Path) -> Result<Vec<(String, u32)>, FileError> {
    let text = read_text(&etc.join("group"), LIMIT)?;
    let group = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    };
    Ok(text.lines().filter_map(group).collect())
}

/// Processes of a user, by any of its four ids: number and, if it is no zombie, the time of its start.
#[must_use]
pub fn processes(proc: &Path, uid: u32) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    for name in crate::probe::names_in(proc) {
        let Ok(pid) = name.parse::<u32>() else { continue };
        // It may end while it is looked at.
        let Ok(status) = std::fs::read_to_string(proc.join(&name).join("status")) else {
            continue;
        };
        let ids = status
            .lines()
            .find_map(|l| l.strip_prefix("Uid:"))
            .unwrap_or_default();
        let ours = ids.split_ascii_whitespace().any(|id| id.parse() == Ok(uid));
        if ours && let Some(start) = super::effect::process::started(proc, pid) {
            found.insert(pid, start);
        }
    }
    found
}

/// Ids that a user or a group has.
#[must_use]
pub fn taken_ids(users: &[Entry], groups: &[(String, u32)]) -> BTreeSet<u32> {
    users
        .iter()
        .flat_map(|u| [u.uid, u.gid])
        .chain(groups.iter().map(|(_, gid)| *gid))
        .collect()
}

/// The lowest id in a range that is not taken.
#[must_use]
pub fn free_id(least: u32, most: u32, taken: &BTreeSet<u32>) -> Option<u32> {
    (least..=most).find(|id| !taken.contains(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_groups_and_free_ids_are_read_from_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\n+::::::\nbob:x:20000:20000:virtengine t1/3:/home/bob:/bin/sh\n";
        std::fs::write(dir.path().join("passwd"), passwd).unwrap();
        std::fs::write(
            dir.path().join("group"),
            "root:x:0:\nbob:x:20000:\nx:x:20001:bob\n",
        )
        .unwrap();
        let (users, groups) = (entries(dir.path()).unwrap(), groups(dir.path()).unwrap());
        assert_eq!(users.len(), 2);
        assert_eq!(
            (users[1].uid, users[1].comment.as_str()),
            (20000, "virtengine t1/3")
        );
        let taken = taken_ids(&users, &groups);
        assert_eq!(free_id(20000, 20005, &taken), Some(20002));
        assert_eq!(free_id(20000, 20001, &taken), None);
    }

    #[test]
    fn processes_of_a_user_are_found() {
        let uid = rustix::process::geteuid().as_raw();
        let own = processes(Path::new("/proc"), uid);
        assert!(own.contains_key(&std::process::id()));
        assert!(processes(Path::new("/proc"), 3_999_999_999).is_empty());
    }
}
