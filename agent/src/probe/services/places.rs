//! Programs in the folders where sites install them. Where one is, and that one is not there, is looked for anew once such a
//! folder has changed: a look at every name in every folder each minute costs more than all other figures of services.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

use super::RARELY;
use crate::probe::tool::FOLDERS;

/// Inode and modification time; none of a folder that is not there.
type Stamp = Option<(u64, i64, i64)>;

/// Where programs were found, and the folders as they were then.
#[derive(Debug)]
pub(super) struct Places {
    folders: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    since: Option<Instant>,
    /// None: in no folder.
    found: BTreeMap<&'static str, Option<PathBuf>>,
}

impl Places {
    /// In `folders`; the first that has a program wins.
    pub(super) fn new(folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            folders: folders.into_iter().map(Into::into).collect(),
            stamps: Vec::new(),
            since: None,
            found: BTreeMap::new(),
        }
    }

    /// Where sites install programs.
    pub(super) fn usual() -> Self {
        Self::new(FOLDERS)
    }

    /// Looks whether something may have come. What a link of another folder leads to comes unseen: rarely, all is
    /// looked for anew.
    pub(super) fn look(&mut self, now: Instant) {
        let stamp = |folder: &PathBuf| {
            let meta = std::fs::metadata(folder).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        };
        let stamps: Vec<Stamp> = self.folders.iter().map(stamp).collect();
        let old = |at: Instant| now.saturating_duration_since(at) >= RARELY;
        if self.since.is_none_or(old) || stamps != self.stamps {
            self.found.clear();
            self.stamps = stamps;
            self.since = Some(now);
        }
    }

    /// Absolute path of the program `name`, and its file as it is now.
    pub(super) fn find(&mut self, name: &'static str) -> Option<(PathBuf, Metadata)> {
        let file = |path: PathBuf| {
            let meta = std::fs::metadata(&path).ok()?;
            meta.is_file().then_some((path, meta))
        };
        if let Some(known) = self.found.get(name) {
            let there = file(known.clone()?);
            if there.is_some() {
                return there;
            }
        }
        let there = self.folders.iter().find_map(|f| file(f.join(name)));
        self.found
            .insert(name, there.as_ref().map(|(path, _)| path.clone()));
        there
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    impl Places {
        fn path(&mut self, name: &'static str) -> Option<PathBuf> {
            self.find(name).map(|(path, _)| path)
        }
    }

    #[test]
    fn what_is_missing_is_looked_for_once_its_folder_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&second).unwrap();
        let mut places = Places::new([&first, &second]);
        let now = Instant::now();
        places.look(now);
        assert_eq!(places.path("podman"), None);
        fs::write(second.join("podman"), "").unwrap();
        // A clock's tick may lie between two changes: this one is seen whenever it came.
        let times = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        fs::File::open(&second).unwrap().set_times(times).unwrap();
        assert_eq!(places.path("podman"), None, "not looked yet");
        places.look(now);
        assert_eq!(places.path("podman"), Some(second.join("podman")));
        fs::create_dir(&first).unwrap();
        fs::write(first.join("podman"), "").unwrap();
        places.look(now);
        assert_eq!(places.path("podman"), Some(first.join("podman")));
        fs::remove_file(first.join("podman")).unwrap();
        assert_eq!(places.path("podman"), Some(second.join("podman")));
    }

    #[test]
    fn what_a_link_leads_to_is_found_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, target) = (dir.path().join("bin"), dir.path().join("target"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&target, folder.join("docker")).unwrap();
        let mut places = Places::new([&folder]);
        let now = Instant::now();
        places.look(now);
        assert_eq!(places.path("docker"), None);
        fs::write(&target, "").unwrap();
        places.look(now);
        assert_eq!(places.path("docker"), None);
        places.look(now + RARELY);
        assert_eq!(places.path("docker"), Some(folder.join("docker")));
    }
}
