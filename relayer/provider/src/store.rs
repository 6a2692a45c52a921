//! The SQLite database: opening, migrations, binding to one contract. Every table belongs to one module,
//! which alone reads and writes it; transactions across modules pass a connection.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row as _, SqlSafeStr as _, SqlitePool};

use crate::home;

/// How long a statement waits for another process that writes.
const BUSY: Duration = Duration::from_secs(10);

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite says so.
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
    /// More waits than can be worked off in time.
    #[error("store: too much waits; the load is more than this machine can take")]
    Busy,
    /// The writer has stopped.
    #[error("store: the writer has stopped")]
    Stopped,
}

/// The database, with one writing connection and a few that read.
#[derive(Debug, Clone)]
pub struct Store {
    write: SqlitePool,
    read: SqlitePool,
}

impl Store {
    /// Opens the database, makes it if it is not there, and brings its schema up to date.
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
        // FULL in WAL mode syncs each commit: an acknowledged heartbeat survives a power cut.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let write = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await?;
        migrations().run(&write).await?;
        let read = SqlitePoolOptions::new()
            .max_connections(3)
            .connect_with(options.read_only(true))
            .await?;
        Ok(Self { write, read })
    }

    /// For statements that only read.
    #[must_use]
    pub fn reader(&self) -> &SqlitePool {
        &self.read
    }

    /// A transaction that holds the write lock from its start.
    ///
    /// # Errors
    /// If SQLite refuses.
    pub async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::Sqlite>, StoreError> {
        Ok(self.write.begin_with("BEGIN IMMEDIATE").await?)
    }

    /// Binds a new store to a contract, and refuses one that is bound to another.
    ///
    /// # Errors
    /// [`StoreError::Bound`].
    pub async fn bind(&self, chain_id: &str, contract: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO binding (one, chain_id, contract) VALUES (1, ?, ?) ON CONFLICT (one) DO NOTHING",
        )
        .bind(chain_id)
        .bind(contract)
        .execute(&mut *tx)
        .await?;
        // As long as nothing refers to a contract, a slip in the configuration can be corrected.
        sqlx::query(
            "UPDATE binding SET chain_id = ?, contract = ?, params = NULL
             WHERE NOT EXISTS (SELECT 1 FROM token) AND NOT EXISTS (SELECT 1 FROM node)
               AND NOT EXISTS (SELECT 1 FROM batch) AND NOT EXISTS (SELECT 1 FROM cluster)",
        )
        .bind(chain_id)
        .bind(contract)
        .execute(&mut *tx)
        .await?;
        let row = sqlx::query("SELECT chain_id, contract FROM binding")
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        let (bound_chain, bound_contract): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if bound_chain == chain_id && bound_contract == contract {
            return Ok(());
        }
        Err(StoreError::Bound {
            chain_id: bound_chain,
            contract: bound_contract,
        })
    }

    /// The chain and contract that the store belongs to; none in a new one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn bound(&self) -> Result<Option<(String, String)>, StoreError> {
        let row = sqlx::query("SELECT chain_id, contract FROM binding")
            .fetch_optional(&self.read)
            .await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    /// Copies the whole database, as of one moment, into a new file. Others may write meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; a file that is there is not overwritten.
    pub async fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let path = path
            .to_str()
            .ok_or_else(|| std::io::Error::other("the path of a copy must be text"))?;
        sqlx::query("VACUUM INTO ?")
            .bind(path)
            .execute(&self.read)
            .await?;
        Ok(())
    }

    /// Whether the database is sound.
    ///
    /// # Errors
    /// [`StoreError`] with what SQLite finds.
    pub async fn quick_check(&self) -> Result<(), StoreError> {
        let found: String = sqlx::query("PRAGMA quick_check")
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
        self.write.close().await;
    }
}

fn migrations() -> Migrator {
    let scripts = [
        (1, "init", include_str!("../migrations/0001_init.sql")),
        (2, "control", include_str!("../migrations/0002_control.sql")),
        (10, "audit", include_str!("../migrations/0010_audit.sql")),
        (
            11,
            "signer address",
            include_str!("../migrations/0011_signer_address.sql"),
        ),
        (20, "events", include_str!("../migrations/0020_events.sql")),
        (21, "alerts", include_str!("../migrations/0021_alerts.sql")),
        (22, "proofs", include_str!("../migrations/0022_proofs.sql")),
        (40, "tasks", include_str!("../migrations/0040_tasks.sql")),
    ];
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(
            version,
            name.into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    };
    Migrator::with_migrations(scripts.into_iter().map(migration).collect())
}

/// A count or time as SQLite's integer.
pub(crate) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// SQLite's integer as a count or time.
pub(crate) fn uint(row: &sqlx::sqlite::SqliteRow, column: &'static str) -> Result<u64, StoreError> {
    let n: i64 = row.try_get(column)?;
    u64::try_from(n).map_err(|_| StoreError::Value { table: "", column })
}

/// The same where it may be absent.
pub(crate) fn opt_uint(
    row: &sqlx::sqlite::SqliteRow,
    column: &'static str,
) -> Result<Option<u64>, StoreError> {
    let n: Option<i64> = row.try_get(column)?;
    n.map(|n| u64::try_from(n).map_err(|_| StoreError::Value { table: "", column }))
        .transpose()
}

/// SQLite's integer as a sequence number.
pub(crate) fn sequence(row: &sqlx::sqlite::SqliteRow, column: &'static str) -> Result<u32, StoreError> {
    u32::try_from(uint(row, column)?).map_err(|_| StoreError::Value { table: "", column })
}

/// Bytes of a fixed length.
pub(crate) fn bytes<const N: usize>(
    row: &sqlx::sqlite::SqliteRow,
    column: &'static str,
) -> Result<[u8; N], StoreError> {
    let b: Vec<u8> = row.try_get(column)?;
    b.try_into().map_err(|_| StoreError::Value { table: "", column })
}

/// Text with a checked form.
pub(crate) fn text<T: std::str::FromStr>(
    row: &sqlx::sqlite::SqliteRow,
    column: &'static str,
) -> Result<T, StoreError> {
    let s: String = row.try_get(column)?;
    s.parse().map_err(|_| StoreError::Value { table: "", column })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_belongs_to_one_contract_and_only_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store/provider.db");
        let store = Store::open(&path).await.unwrap();
        store.bind("hpc-typo", "wasm1abc").await.unwrap();
        store.bind("hpc-1", "wasm1abc").await.unwrap();
        let mut tx = store.begin().await.unwrap();
        sqlx::query("INSERT INTO cluster (cluster_id, record) VALUES ('c', '')")
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
        let mode: String = sqlx::query("PRAGMA journal_mode")
            .fetch_one(&mut *tx)
            .await
            .unwrap()
            .get(0);
        let sync: i64 = sqlx::query("PRAGMA synchronous")
            .fetch_one(&mut *tx)
            .await
            .unwrap()
            .get(0);
        assert_eq!((mode.as_str(), sync), ("wal", 2));
    }
}
