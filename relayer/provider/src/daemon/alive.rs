use std::time::Duration;

use tokio::time::timeout;

use crate::db;
use crate::store::Store;

/// How long the store may take for a look and for the write lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells whether the daemon still works, for the service manager's watchdog.
#[derive(Debug, Clone)]
pub struct Alive(Store);

impl Alive {
    pub(super) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Whether the store answers and its writer is free in time. That this runs at all shows that the tasks do.
    pub async fn check(&self) -> bool {
        // A database elsewhere is not mended by a restart of the gateway; `readyz` says that it fails.
        if self.0.is_shared() {
            return true;
        }
        let works = async {
            let read = db::query("SELECT 1").execute(self.0.reader()).await.is_ok();
            // Rolled back when dropped.
            let write = self.0.begin().await.is_ok();
            read && write
        };
        timeout(PATIENCE, works).await.unwrap_or(false)
    }
}
