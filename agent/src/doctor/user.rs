//! The service's user and what it may open, judged from outside: `doctor` is run by root as a rule.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::config::Config;
use crate::files::{Owner, directory_of, read_text};

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// Its name; its number if it has none.
    pub(crate) name: String,
    /// Its groups by number.
    gids: Vec<u32>,
    /// Its groups by name.
    groups: Vec<String>,
}

impl User {
    /// Whose the state directory is, else the key; before both are there, whoever asks.
    pub(crate) fn of_service(config: &Config) -> Self {
        let owner = Owner::of(&config.state_dir).or_else(|_| Owner::of(directory_of(&config.key_path)));
        let uid = owner.map_or_else(|_| rustix::process::geteuid().as_raw(), |o| o.uid);
        Self::of_host(uid, &config.roots.etc)
    }

    /// As the files of the host have it.
    pub(crate) fn of_host(uid: u32, etc: &Path) -> Self {
        let read = |name: &str| read_text(&etc.join(name), 4 << 20).unwrap_or_default();
        Self::find(uid, &read("passwd"), &read("group"))
    }

    /// Its groups by number, its own first; none of one that has no account.
    pub(crate) fn gids(&self) -> &[u32] {
        &self.gids
    }

    pub(crate) fn find(uid: u32, passwd: &str, group: &str) -> Self {
        let row = passwd.lines().find_map(|l| {
            let words: Vec<&str> = l.split(':').collect();
            let is = words.get(2)?.parse() == Ok(uid);
            is.then(|| Some(((*words.first()?).to_owned(), words.get(3)?.parse::<u32>().ok()?)))?
        });
        let (name, gid) = match row {
            Some((name, gid)) => (name, Some(gid)),
            None => (uid.to_string(), None),
        };
        let (mut gids, mut groups): (Vec<u32>, Vec<String>) = (gid.into_iter().collect(), Vec::new());
        for line in group.lines() {
            let words: Vec<&str> = line.split(':').collect();
            let (Some(group), Some(number), Some(members)) = (words.first(), words.get(2), words.get(3))
            else {
                continue;
            };
            let Ok(number) = number.parse::<u32>() else {
                continue;
            };
            if gid == Some(number) || members.split(',').any(|m| m == name) {
                gids.push(number);
                groups.push((*group).to_owned());
            }
        }
        Self {
            uid,
            name,
            gids,
            groups,
        }
    }

    /// Whether it is in this group, or root.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.uid == 0 || self.groups.iter().any(|g| g == group)
    }

    /// Whether the file's mode lets it (`read` 4, `write` 2, both 6); none if there is no such file.
    pub(crate) fn may(&self, path: &Path, wanted: u32) -> Option<bool> {
        let meta = std::fs::metadata(path).ok()?;
        Some(self.uid == 0 || self.bits(&meta) & wanted == wanted)
    }

    fn bits(&self, meta: &Metadata) -> u32 {
        let mode = meta.mode();
        let shift = if meta.uid() == self.uid {
            6
        } else if self.gids.contains(&meta.gid()) {
            3
        } else {
            0
        };
        (mode >> shift) & 7
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nvirtengine:x:990:980::/var/lib/virtengine:/usr/sbin/nologin\n";
    const GROUP: &str = "root:x:0:\nvirtengine:x:980:\ntss:x:105:other,virtengine\nkvm:x:106:other\n";

    #[test]
    fn a_user_is_in_its_own_group_and_in_those_that_name_it() {
        let user = User::find(990, PASSWD, GROUP);
        assert_eq!(user.name, "virtengine");
        assert!(user.is_in("virtengine") && user.is_in("tss") && !user.is_in("kvm"));
        assert!(User::find(0, PASSWD, GROUP).is_in("kvm"));
        assert_eq!(User::find(7, PASSWD, GROUP).name, "7");
    }

    #[test]
    fn what_a_user_may_open_is_its_class_of_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        let owner = Owner::of(&path).unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let user = |uid, gids: &[u32]| User {
            uid,
            name: String::new(),
            gids: gids.to_vec(),
            groups: Vec::new(),
        };
        set(0o640);
        assert_eq!(user(4242, &[]).may(&path, 4), Some(false));
        assert_eq!(user(4242, &[owner.gid]).may(&path, 4), Some(true));
        assert_eq!(user(4242, &[owner.gid]).may(&path, 6), Some(false));
        set(0o060);
        assert_eq!(user(4242, &[owner.gid]).may(&path, 6), Some(true));
        assert_eq!(user(0, &[]).may(&path, 6), Some(true));
        assert_eq!(user(0, &[]).may(&dir.path().join("none"), 6), None);
    }
}
