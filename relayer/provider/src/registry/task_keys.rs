use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;

use crate::home::{self, Home};
use crate::identity::{Seed, SeedError};

/// The clusters' task keys, read from their files when first needed.
#[derive(Debug)]
pub struct TaskKeys {
    home: Home,
    loaded: Mutex<HashMap<ClusterId, Arc<Seed>>>,
}

impl TaskKeys {
    /// Of this directory.
    #[must_use]
    pub fn new(home: Home) -> Self {
        Self {
            home,
            loaded: Mutex::default(),
        }
    }

    /// The cluster's key, if its file is there.
    ///
    /// # Errors
    /// If the file is there and cannot be used.
    pub fn get(&self, cluster: &ClusterId) -> Result<Option<Arc<Seed>>, SeedError> {
        if let Some(key) = self.known(cluster) {
            return Ok(Some(key));
        }
        let path = self.home.task_key(cluster);
        if !path.exists() {
            return Ok(None);
        }
        let key = Arc::new(Seed::load(&path)?);
        self.keep(cluster, &key);
        Ok(Some(key))
    }

    /// The cluster's key that counts: that of the newest rotation, if there was one. A rotation is on record before its key
    /// has the former one's file.
    ///
    /// # Errors
    /// If a file is there and cannot be used; [`SeedError::Former`].
    pub fn counts(
        &self,
        cluster: &ClusterId,
        newest: Option<&AgentKey>,
    ) -> Result<Option<Arc<Seed>>, SeedError> {
        let first = self.get(cluster)?;
        let (Some(newest), Some(known)) = (newest, &first) else {
            return Ok(first);
        };
        if known.public() == newest {
            return Ok(first);
        }
        let path = self.home.task_key(cluster);
        for file in [&path, &self.home.next_task_key(cluster)] {
            if !file.exists() {
                continue;
            }
            let key = Arc::new(Seed::load(file)?);
            if key.public() == newest {
                self.keep(cluster, &key);
                return Ok(Some(key));
            }
        }
        Err(SeedError::Former { path, now: *newest })
    }

    /// The clusters that have a key's file in this directory.
    ///
    /// # Errors
    /// If the directory is there and cannot be read.
    pub fn clusters(home: &Home) -> Result<Vec<ClusterId>, SeedError> {
        let dir = home.task_keys();
        let entries = match std::fs::read_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(SeedError::File { path: dir, source }),
            Ok(entries) => entries,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = match entry {
                Ok(entry) => entry.file_name(),
                Err(source) => return Err(SeedError::File { path: dir, source }),
            };
            let name = name.to_string_lossy();
            found.extend(
                name.strip_suffix(".key")
                    .and_then(|id| id.parse::<ClusterId>().ok()),
            );
        }
        found.sort();
        Ok(found)
    }

    /// Whether the key files in this directory can be used.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(home: &Home) -> Result<(), SeedError> {
        let keys = Self::new(home.clone());
        for cluster in Self::clusters(home)? {
            keys.get(&cluster)?;
        }
        Ok(())
    }

    /// The cluster's key, made now if there is none.
    ///
    /// # Errors
    /// If the file cannot be made or used.
    pub fn get_or_create(&self, cluster: &ClusterId) -> Result<Arc<Seed>, SeedError> {
        if let Some(key) = self.get(cluster)? {
            return Ok(key);
        }
        let path = self.home.task_key(cluster);
        let key = Arc::new(Seed::load_or_create(&path)?);
        self.keep(cluster, &key);
        Ok(key)
    }

    /// The key that is to take the cluster's key's place, if one is drawn.
    ///
    /// # Errors
    /// If the file is there and cannot be used.
    pub fn drawn(&self, cluster: &ClusterId) -> Result<Option<Seed>, SeedError> {
        let next = self.home.next_task_key(cluster);
        next.exists().then(|| Seed::load(&next)).transpose()
    }

    /// The key that is to take the cluster's key's place; drawn now if none is.
    ///
    /// # Errors
    /// If the file cannot be made or used.
    pub fn next(&self, cluster: &ClusterId) -> Result<Seed, SeedError> {
        Seed::load_or_create(&self.home.next_task_key(cluster))
    }

    /// Whether `newest` lies beside the key's file, whose place it is to take.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn waits(&self, cluster: &ClusterId, newest: &AgentKey) -> Result<bool, SeedError> {
        let next = self.home.next_task_key(cluster);
        Ok(next.exists() && Seed::load(&next)?.public() == newest)
    }

    /// Gives `newest`, if it lies beside the key's file, that file; whether it did. Good if it has it already.
    ///
    /// # Errors
    /// If the files cannot be read or moved.
    pub fn promote(&self, cluster: &ClusterId, newest: &AgentKey) -> Result<bool, SeedError> {
        if !self.waits(cluster, newest)? {
            return Ok(false);
        }
        let (next, path) = (self.home.next_task_key(cluster), self.home.task_key(cluster));
        home::promote(&next, &path).map_err(|source| SeedError::File { path: next, source })?;
        Ok(true)
    }

    fn known(&self, cluster: &ClusterId) -> Option<Arc<Seed>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.get(cluster).map(Arc::clone)
    }

    fn keep(&self, cluster: &ClusterId, key: &Arc<Seed>) {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.insert(cluster.clone(), Arc::clone(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_may_read_is_found_by_looking_at_all() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        assert!(TaskKeys::clusters(&home).unwrap().is_empty());
        let all: Vec<ClusterId> = ["hpc-cluster-1", "hpc-cluster-2"]
            .map(|c| c.parse().unwrap())
            .into();
        for cluster in &all {
            TaskKeys::new(home.clone()).get_or_create(cluster).unwrap();
            TaskKeys::new(home.clone()).next(cluster).unwrap();
        }
        assert_eq!(TaskKeys::clusters(&home).unwrap(), all);
        TaskKeys::check(&home).unwrap();
        let path = home.task_key(&all[0]);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let e = TaskKeys::check(&home).unwrap_err().to_string();
        assert!(e.contains("hpc-cluster-1.key"), "{e}");
    }

    #[test]
    fn the_key_of_the_newest_rotation_counts_wherever_its_file_is_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let daemon = TaskKeys::new(home.clone());
        assert!(daemon.counts(&cluster, None).unwrap().is_none());
        let old = daemon.get_or_create(&cluster).unwrap();
        let desk = TaskKeys::new(home.clone());
        let new = desk.next(&cluster).unwrap();
        assert_eq!(desk.next(&cluster).unwrap().public(), new.public());
        assert_eq!(
            daemon.counts(&cluster, None).unwrap().unwrap().public(),
            old.public()
        );
        // On record, and the file is still the former one's.
        let newest = Some(new.public());
        assert_eq!(
            daemon.counts(&cluster, newest).unwrap().unwrap().public(),
            new.public()
        );
        assert!(!desk.promote(&cluster, old.public()).unwrap());
        assert!(desk.promote(&cluster, new.public()).unwrap());
        assert!(!desk.promote(&cluster, new.public()).unwrap());
        assert!(!home.next_task_key(&cluster).exists());
        let again = TaskKeys::new(home);
        assert_eq!(
            again.counts(&cluster, newest).unwrap().unwrap().public(),
            new.public()
        );
        // Another gateway's directory has only the former one.
        let e = again.counts(&cluster, Some(old.public())).unwrap_err();
        assert!(e.to_string().contains("at which it was rotated"), "{e}");
    }
}
