use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hpc_schema::id::ClusterId;

use crate::clock;
use crate::home::Home;
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
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = loaded.get(cluster) {
            return Ok(Some(Arc::clone(key)));
        }
        let path = self.home.task_key(cluster);
        if !path.exists() {
            return Ok(None);
        }
        let key = Arc::new(Seed::load(&path)?);
        loaded.insert(cluster.clone(), Arc::clone(&key));
        Ok(Some(key))
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
        let file = |source| SeedError::File {
            path: path.clone(),
            source,
        };
        let random = clock::random::<32>().map_err(|e| file(std::io::Error::other(e)))?;
        if let Some(dir) = path.parent() {
            crate::home::make_private_dir(dir).map_err(file)?;
        }
        match Seed::create(&path, &random) {
            // Another process was faster; its key counts.
            Err(SeedError::File { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made?;
            }
        }
        self.get(cluster)?
            .ok_or_else(|| file(std::io::Error::from(std::io::ErrorKind::NotFound)))
    }
}
