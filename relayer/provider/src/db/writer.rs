//! SQLite's one connection that writes. A pool would ask a connection that comes back whether it lives, one more way to its
//! thread, and could only close one whose transaction nobody has ended.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::timeout;

use super::give_way::give_way;

/// How long a writer waits for those before it, as in sqlx's pools.
const WITHIN: Duration = Duration::from_secs(30);
/// Undoes what is open, and is no error where nothing is: SQLite may have undone it by itself, and a `COMMIT` that nobody
/// waited for may have been carried out. The savepoint then begins what `ROLLBACK` ends.
const UNDO: &str = "SAVEPOINT undone; ROLLBACK";

/// Who writes excludes the others, in the order in which they came.
#[derive(Debug, Clone)]
pub(crate) struct Writer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: SqliteConnectOptions,
    place: Arc<Mutex<Place>>,
    closed: watch::Sender<bool>,
    within: Duration,
}

/// What the one has who writes.
#[derive(Debug)]
struct Place {
    /// None: it is opened by the next one.
    conn: Option<SqliteConnection>,
    /// A transaction may have begun that has not ended. Whoever comes next undoes it before anything else.
    open: bool,
    /// How long that may take: longer than SQLite waits for another process, shorter than the next one waits for its turn.
    undone: Duration,
}

impl Place {
    fn conn(&mut self) -> Result<&mut SqliteConnection, Error> {
        self.conn.as_mut().ok_or(Error::WorkerCrashed)
    }

    /// What was given up is undone. Statements run on the connection's thread in the order in which they were sent, so this
    /// one comes behind them; of several that went together and that nobody waits for, the thread runs a part.
    async fn undo(&mut self) {
        if self.open
            && let Some(conn) = &mut self.conn
        {
            // sqlx never answers what was sent to a thread that was just ending.
            let undone = timeout(self.undone, conn.execute(UNDO)).await;
            if let Err(e) = undone.unwrap_or(Err(Error::PoolTimedOut)) {
                tracing::warn!(error = %e, "the connection that writes to the store is opened anew");
                self.conn = None;
            }
        }
        self.open = false;
    }
}

impl Writer {
    /// On this connection, opened with these options.
    pub(crate) fn new(conn: SqliteConnection, options: SqliteConnectOptions) -> Self {
        Self::waiting(conn, options, WITHIN)
    }

    fn waiting(conn: SqliteConnection, options: SqliteConnectOptions, within: Duration) -> Self {
        let place = Place {
            conn: Some(conn),
            open: false,
            undone: within * 2 / 3,
        };
        Self(Arc::new(Inner {
            options,
            place: Arc::new(Mutex::new(place)),
            closed: watch::Sender::new(false),
            within,
        }))
    }

    /// The database's file.
    pub(crate) fn file(&self) -> &Path {
        self.0.options.get_filename()
    }

    /// Waits for its turn; then the connection is there and in no transaction.
    async fn turn(&self) -> Result<OwnedMutexGuard<Place>, Error> {
        let inner = &*self.0;
        let taken = async {
            let mut closed = inner.closed.subscribe();
            let mut place = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return Err(Error::PoolClosed),
                place = Arc::clone(&inner.place).lock_owned() => place,
            };
            if *inner.closed.borrow() {
                return Err(Error::PoolClosed);
            }
            place.undo().await;
            if place.conn.is_none() {
                place.conn = Some(inner.options.connect().await?);
                give_way();
            }
            Ok(place)
        };
        timeout(inner.within, taken)
            .await
            .unwrap_or(Err(Error::PoolTimedOut))
    }

    /// Lets nobody begin any more, waits for what is under way and closes the connection.
    pub(crate) async fn close(&self) {
        self.0.closed.send_replace(true);
        let mut place = self.0.place.lock().await;
        // What was given up is undone with it.
        place.open = false;
        if let Some(conn) = place.conn.take()
            && let Err(e) = conn.close().await
        {
            tracing::debug!(error = %e, "the connection that writes to the store had ended before");
        }
    }

    /// As if it had failed.
    #[cfg(test)]
    pub(crate) async fn lose(&self) {
        self.0.place.lock().await.conn = None;
    }
}

/// A transaction from before its first word to after its last one. One that nobody has seen end is undone.
#[derive(Debug)]
pub(super) struct Open {
    place: OwnedMutexGuard<Place>,
}

impl Open {
    /// The connection's turn has come: what is sent from here on counts as begun.
    pub(super) async fn of(writer: &Writer) -> Result<Self, Error> {
        let mut place = writer.turn().await?;
        place.open = true;
        Ok(Self { place })
    }

    pub(super) fn conn(&mut self) -> Result<&mut SqliteConnection, Error> {
        self.place.conn()
    }

    /// Its last word was answered.
    pub(super) fn ended(mut self) {
        self.place.open = false;
    }

    pub(super) async fn undo(mut self) {
        self.place.undo().await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.place.open {
            return;
        }
        // Others wait for the lock, in other processes too. Where nothing runs any more, whoever comes next undoes it.
        if let Ok(runtime) = Handle::try_current() {
            let place = Arc::clone(OwnedMutexGuard::mutex(&self.place));
            runtime.spawn(async move { place.lock_owned().await.undo().await });
        }
    }
}

#[cfg(test)]
mod tests;
