//! The store: opening, migrations, binding to one contract. SQLite for one gateway, PostgreSQL for several. Every table
//! belongs to one module, which alone reads and writes it; transactions across modules pass a connection.

mod binding;
mod checkpoint;
mod copy;
mod lease;
mod migrations;
mod news;
mod postgres;
mod signing;
mod value;

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::PgPool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

pub use binding::{ask_bound, told_bound};
use checkpoint::Checkpoints;
use lease::Fence;
pub(crate) use lease::HOLDS;
pub use lease::Lease;
pub use news::{Heard, News};
pub use postgres::{Changes, check_url};
pub use signing::SigningTurn;
pub(crate) use value::{bytes, int, opt_uint, sequence, text, uint};

use crate::config;
use crate::db::{self, Pool, Query, Rows, Transaction, Writer};
use crate::home::{self, Home};
use crate::page::BadCursor;

/// How long a statement waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);
/// Pages that the writing connection keeps in memory, as SQLite has it: KiB, negative.
const WRITE_CACHE: &str = "-4096";
/// The same of each other one: what they read they mostly read once.
const READ_CACHE: &str = "-512";
/// Rows that a connection's thread is ahead of who reads them, at most.
const ROWS: usize = 512;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database says so.
    #[error("store: {0}")]
    Sql(#[from] sqlx::Error),
    /// The schema cannot be brought up to date.
    #[error("store: {0}; was it written by a newer version?")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The file cannot be made.
    #[error("store: {0}")]
    Io(#[from] std::io::Error),
    /// A value on record that this version cannot read.
    #[error("store: {table}.{column} holds a value that cannot be read; restore a backup")]
    Value {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
    },
    /// The store belongs to another contract.
    #[error(
        "the store belongs to contract {contract} on chain {chain_id}; use another --home for another contract"
    )]
    Bound {
        /// Its chain.
        chain_id: String,
        /// Its contract.
        contract: String,
    },
    /// What `store.url` and the keys beside it say cannot be used.
    #[error("{key}: {message}")]
    Config {
        /// The key.
        key: &'static str,
        /// What is wrong, and the remedy.
        message: String,
    },
    /// Another gateway does now what only one may do.
    #[error("store: another gateway has taken over; nothing of what this one was about to write is kept")]
    TakenOver,
    /// What was given as the end of a page before is none.
    #[error("after: {0}")]
    Cursor(#[from] BadCursor),
    /// PostgreSQL has its own tools for this.
    #[error(
        "the store is in PostgreSQL (store.url): back it up with pg_dump, and ca, gateway, keys and config.yaml of --home with tar"
    )]
    Elsewhere,
    /// More waits than can be worked off in time.
    #[error("store: too much waits; the load is more than this machine can take")]
    Busy,
    /// The writer has stopped.
    #[error("store: the writer has stopped")]
    Stopped,
}

/// The database: what writes excludes each other, what reads does not.
#[derive(Debug, Clone)]
pub struct Store {
    write: Write,
    read: Pool,
    /// What is written counts only as long as this gateway is the one that may.
    fence: Option<Fence>,
}

#[derive(Debug, Clone)]
enum Write {
    /// One connection, and one that keeps the journal short.
    Sqlite {
        writer: Writer,
        checkpoints: Checkpoints,
    },
    /// A few, and some that wait for other gateways.
    Postgres { pool: PgPool, aside: PgPool },
}

impl Store {
    /// The store of this directory: its own SQLite, or the PostgreSQL that `store.url` names.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn of(home: &Home, config: &config::Store) -> Result<Self, StoreError> {
        match &config.url {
            None => Self::open(&home.store()).await,
            Some(url) => Self::connect(postgres::options(url, config.password_file.as_deref())?).await,
        }
    }

    /// Opens SQLite's database, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(dir) = path.parent() {
            home::make_private_dir(dir)?;
        }
        if !path.exists() {
            match home::create_private(path, b"") {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.into()),
                _ => {}
            }
        }
        // FULL in WAL mode syncs each commit: it survives a power cut, and what the intake journal held before it may go.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY)
            // Rows come over from the connection's thread: what reads all that waits takes few turns for it.
            .row_buffer_size(ROWS)
            .pragma("wal_autocheckpoint", checkpoint::LATEST.to_string());
        // There is no network on which a connection could have been lost.
        let pool = |most: u32| {
            SqlitePoolOptions::new()
                .max_connections(most)
                .test_before_acquire(false)
                .after_connect(|_, _| {
                    db::give_way();
                    Box::pin(async { Ok(()) })
                })
        };
        // What waits of a thousand nodes is written again and again.
        let writing = options
            .clone()
            .pragma("cache_size", WRITE_CACHE)
            // What a statement of many rows would have to undo, which else goes through a file.
            .pragma("temp_store", "memory");
        let mut conn = writing.connect().await?;
        db::give_way();
        migrations::sqlite().run(&mut conn).await?;
        let options = options.pragma("cache_size", READ_CACHE);
        let read = pool(3).connect_with(options.clone().read_only(true)).await?;
        Ok(Self {
            write: Write::Sqlite {
                writer: Writer::new(conn, writing),
                checkpoints: Checkpoints::new(pool(1).connect_lazy_with(options)),
            },
            read: Pool::Sqlite(read),
            fence: None,
        })
    }

    /// Whether other gateways may work on it too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.write, Write::Postgres { .. })
    }

    /// Where SQLite's database lies; none for one that is elsewhere.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.write {
            Write::Sqlite { writer, .. } => writer.file().parent(),
            Write::Postgres { .. } => None,
        }
    }

    /// For statements that only read.
    #[must_use]
    pub fn reader(&self) -> &Pool {
        &self.read
    }

    /// A transaction that no other one runs beside, of whatever gateway.
    ///
    /// # Errors
    /// If the database refuses; [`StoreError::TakenOver`].
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        match &self.write {
            Write::Sqlite { writer, .. } => Ok(Transaction::sqlite(writer, Vec::new()).await?.0),
            Write::Postgres { pool, .. } => {
                let mut tx = postgres::begin(pool).await?;
                if let Some(fence) = &self.fence {
                    fence.holds(&mut tx).await?;
                }
                Ok(tx)
            }
        }
    }

    /// The same with its first statements, and their rows.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub async fn begin_together(&self, queries: Vec<Query<'_>>) -> Result<(Transaction, Rows), StoreError> {
        if let Write::Sqlite { writer, .. } = &self.write {
            let (tx, answers) = Transaction::sqlite(writer, queries).await?;
            return Ok((tx, db::rows(answers)));
        }
        let mut tx = self.begin().await?;
        let rows = tx.together(queries).await?;
        Ok((tx, rows))
    }

    /// A transaction of the statements that take reports in, with the first of them and how many rows each changed. It may
    /// run beside those of other gateways: they lock the rows of their nodes in one order.
    ///
    /// # Errors
    /// If the database refuses.
    pub async fn begin_intake(&self, queries: Vec<Query<'_>>) -> Result<(Transaction, Vec<u64>), StoreError> {
        match &self.write {
            Write::Sqlite { writer, .. } => {
                let (tx, answers) = Transaction::sqlite(writer, queries).await?;
                Ok((tx, db::changes(&answers)))
            }
            Write::Postgres { pool, .. } => {
                let mut tx = postgres::begin_beside(pool).await?;
                let changed = tx.change_together(queries).await?;
                Ok((tx, changed))
            }
        }
    }

    /// So many reports were taken in.
    pub(crate) fn took_in(&self, reports: usize) {
        if let Write::Sqlite { checkpoints, .. } = &self.write {
            checkpoints.written(reports);
        }
    }

    /// Whether the database is sound.
    ///
    /// # Errors
    /// [`StoreError`] with what SQLite finds.
    pub async fn quick_check(&self) -> Result<(), StoreError> {
        if self.is_shared() {
            db::query("SELECT 1").fetch_one(&self.read).await?;
            return Ok(());
        }
        let found: String = db::query("PRAGMA quick_check")
            .fetch_one(&self.read)
            .await?
            .try_get(0)?;
        if found == "ok" {
            return Ok(());
        }
        Err(std::io::Error::other(format!("the database is damaged: {found}")).into())
    }

    /// Closes every connection, after what is under way.
    pub async fn close(&self) {
        self.read.close().await;
        match &self.write {
            Write::Sqlite { writer, checkpoints } => {
                checkpoints.close().await;
                writer.close().await;
            }
            Write::Postgres { pool, aside } => {
                aside.close().await;
                pool.close().await;
            }
        }
    }
}

#[cfg(test)]
impl Store {
    /// The store of this path for a test that runs on both databases: where `HPC_TEST_STORE=postgres`, a database of its own.
    pub(crate) async fn for_test(path: &Path) -> Self {
        use sha2::Digest as _;
        use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

        if std::env::var("HPC_TEST_STORE").as_deref() != Ok("postgres") {
            return Self::open(path).await.unwrap();
        }
        let server = std::env::var("HPC_TEST_POSTGRES").unwrap();
        let digest = sha2::Sha256::digest(path.to_string_lossy().as_bytes());
        let name = format!("unit_{}", hex::encode(&digest[..8]));
        let mut conn = PgConnection::connect(&server).await.unwrap();
        // There already: opened a second time.
        drop(
            conn.execute(AssertSqlSafe(format!("CREATE DATABASE {name}")))
                .await,
        );
        conn.close().await.unwrap();
        let url = server.replacen("/postgres", &format!("/{name}"), 1);
        Self::connect(postgres::options(&url, None).unwrap())
            .await
            .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sqlite_is_built_as_cargo_s_configuration_says() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store/provider.db")).await.unwrap();
        let rows = db::query("PRAGMA compile_options")
            .fetch_all(store.reader())
            .await
            .unwrap();
        let options: Vec<String> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
        // One of .cargo/config.toml's flags that it tells of, and one that is not there.
        assert!(options.iter().any(|o| o == "DEFAULT_MEMSTATUS=0"), "{options:?}");
        assert!(
            !options.iter().any(|o| o == "ENABLE_MEMORY_MANAGEMENT"),
            "{options:?}"
        );
    }

    #[tokio::test]
    async fn a_store_belongs_to_one_contract_and_only_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store/provider.db");
        let store = Store::open(&path).await.unwrap();
        store.bind("hpc-typo", "wasm1abc").await.unwrap();
        store.bind("hpc-1", "wasm1abc").await.unwrap();
        let mut tx = store.begin().await.unwrap();
        db::query("INSERT INTO cluster (cluster_id, record) VALUES ('c', '')")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        store.bind("hpc-1", "wasm1abc").await.unwrap();
        assert!(matches!(
            store.bind("hpc-2", "wasm1abc").await,
            Err(StoreError::Bound { .. })
        ));
        store.close().await;
        // A second opening finds the schema in place.
        Store::open(&path)
            .await
            .unwrap()
            .bind("hpc-1", "wasm1abc")
            .await
            .unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        for file in std::fs::read_dir(dir.path().join("store")).unwrap() {
            let file = file.unwrap();
            assert_eq!(
                file.metadata().unwrap().permissions().mode() & 0o077,
                0,
                "{:?}",
                file.path()
            );
        }
    }

    #[tokio::test]
    async fn the_journal_is_synced_at_each_commit() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        let mode: String = db::query("PRAGMA journal_mode")
            .fetch_one(&mut *tx)
            .await
            .unwrap()
            .get(0);
        let sync: i64 = db::query("PRAGMA synchronous")
            .fetch_one(&mut *tx)
            .await
            .unwrap()
            .get(0);
        assert_eq!((mode.as_str(), sync), ("wal", 2));
    }

    #[tokio::test]
    async fn a_connection_that_writes_in_place_of_a_lost_one_is_like_it() {
        let asks = || {
            let names =
                "journal_mode synchronous foreign_keys busy_timeout wal_autocheckpoint cache_size temp_store";
            let ask = |name| db::query(format!("PRAGMA {name}"));
            names.split(' ').map(ask).collect()
        };
        let told = |rows: Rows| -> Vec<String> {
            let of = |rows: &Vec<db::Row>| {
                let row = rows.first().unwrap();
                let text = row.try_get::<String, _>(0);
                text.unwrap_or_else(|_| row.get::<i64, _>(0).to_string())
            };
            rows.iter().map(of).collect()
        };
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let (tx, rows) = store.begin_together(asks()).await.unwrap();
        let before = told(rows);
        assert_eq!(before, ["wal", "2", "1", "10000", "16384", "-4096", "2"]);
        tx.commit().await.unwrap();
        let Write::Sqlite { writer, .. } = &store.write else {
            panic!("not SQLite");
        };
        writer.lose().await;
        let (tx, rows) = store.begin_together(asks()).await.unwrap();
        assert_eq!(told(rows), before);
        tx.rollback().await.unwrap();
    }
}
