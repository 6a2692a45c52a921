use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Error, Postgres, Sqlite};

use super::conn::{Conn, Inner, Open};
use super::query::Query;
use super::together::{Rows, on_sqlite};

impl Open {
    async fn end(mut self, queries: Vec<Query<'_>>, word: &'static str) -> Result<Rows, Error> {
        let rows = on_sqlite(&mut self.conn, "", queries, word).await?;
        self.ended = true;
        Ok(rows)
    }
}

/// A transaction; rolled back when dropped.
#[derive(Debug)]
pub struct Transaction(Conn);

impl Transaction {
    pub(crate) fn sqlite(tx: sqlx::Transaction<'static, Sqlite>) -> Self {
        Self(Conn(Inner::SqliteTx(tx)))
    }

    pub(crate) fn postgres(tx: sqlx::Transaction<'static, Postgres>) -> Self {
        Self(Conn(Inner::PostgresTx(tx)))
    }

    /// One that excludes other writers, with its first statements.
    pub(crate) async fn open(
        conn: PoolConnection<Sqlite>,
        queries: Vec<Query<'_>>,
    ) -> Result<(Self, Rows), Error> {
        let mut open = Open { conn, ended: false };
        let rows = on_sqlite(&mut open.conn, "BEGIN IMMEDIATE", queries, "").await?;
        Ok((Self(Conn(Inner::SqliteOpen(open))), rows))
    }

    /// Makes it last, with these as its last statements: all of it, or nothing.
    ///
    /// # Errors
    /// What the database says; after the statements, whether it lasts is unknown.
    pub async fn commit_together(mut self, queries: Vec<Query<'_>>) -> Result<Rows, Error> {
        if let Inner::SqliteOpen(open) = self.0.0 {
            return open.end(queries, "COMMIT").await;
        }
        let rows = self.together(queries).await?;
        self.commit().await?;
        Ok(rows)
    }

    /// Makes it last.
    ///
    /// # Errors
    /// What the database says; whether it lasts is then unknown.
    pub async fn commit(self) -> Result<(), Error> {
        match self.0.0 {
            Inner::SqliteTx(tx) => tx.commit().await,
            Inner::PostgresTx(tx) => tx.commit().await,
            Inner::SqliteOpen(open) => open.end(Vec::new(), "COMMIT").await.map(drop),
            Inner::SqliteHeld(_) | Inner::PostgresHeld(_) => Ok(()),
        }
    }

    /// Undoes it.
    ///
    /// # Errors
    /// What the database says.
    pub async fn rollback(self) -> Result<(), Error> {
        match self.0.0 {
            Inner::SqliteTx(tx) => tx.rollback().await,
            Inner::PostgresTx(tx) => tx.rollback().await,
            Inner::SqliteOpen(open) => open.end(Vec::new(), "ROLLBACK").await.map(drop),
            Inner::SqliteHeld(_) | Inner::PostgresHeld(_) => Ok(()),
        }
    }
}

impl Deref for Transaction {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}
