use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sqlx::sqlite::SqlitePool;

/// Pages in the journal (64 MiB) at which a commit copies them into the database by itself. Only then
/// can the journal begin anew; by then most has been copied already.
pub(super) const LATEST: u32 = 16_384;
/// After so many reports what is in the journal is copied into the database, while others go on writing. The disk is busy
/// for tens of milliseconds then, and whoever waits for it waits longer.
const EVERY: usize = 8_000;

/// Copies SQLite's journal into the database on a connection of its own: the disk is synced twice for it, which no report
/// should wait for.
#[derive(Debug, Clone)]
pub(super) struct Checkpoints(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: SqlitePool,
    reports: AtomicUsize,
    under_way: AtomicBool,
}

impl Checkpoints {
    /// On the one connection of this pool.
    pub(super) fn new(pool: SqlitePool) -> Self {
        Self(Arc::new(Inner {
            pool,
            reports: AtomicUsize::new(0),
            under_way: AtomicBool::new(false),
        }))
    }

    /// So many reports were committed.
    pub(super) fn written(&self, reports: usize) {
        let inner = &self.0;
        let since = inner
            .reports
            .fetch_add(reports, Ordering::Relaxed)
            .saturating_add(reports);
        if since < EVERY || inner.under_way.swap(true, Ordering::Relaxed) {
            return;
        }
        inner.reports.store(0, Ordering::Relaxed);
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            let done = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
                .execute(&inner.pool)
                .await;
            if let Err(e) = done {
                // A commit does it at the latest.
                tracing::debug!(error = %e, "the store's journal is copied later");
            }
            inner.under_way.store(false, Ordering::Relaxed);
        });
    }

    pub(super) async fn close(&self) {
        self.0.pool.close().await;
    }
}
