use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Error, Postgres, Sqlite};

use super::query::Query;
use super::together::{Rows, on_sqlite};

/// Connections that only read.
#[derive(Debug, Clone)]
pub enum Pool {
    /// To SQLite.
    Sqlite(SqlitePool),
    /// To PostgreSQL.
    Postgres(PgPool),
}

impl Pool {
    /// One of them.
    ///
    /// # Errors
    /// If none is free in time, or the database cannot be reached.
    pub async fn acquire(&self) -> Result<Held, Error> {
        Ok(Held(Conn(match self {
            Self::Sqlite(pool) => Inner::SqliteHeld(pool.acquire().await?),
            Self::Postgres(pool) => Inner::PostgresHeld(pool.acquire().await?),
        })))
    }

    /// Closes every one, after what is under way.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A connection, in a transaction or not.
#[derive(Debug)]
pub struct Conn(Inner);

#[derive(Debug)]
enum Inner {
    SqliteHeld(PoolConnection<Sqlite>),
    PostgresHeld(PoolConnection<Postgres>),
    SqliteTx(sqlx::Transaction<'static, Sqlite>),
    PostgresTx(sqlx::Transaction<'static, Postgres>),
    SqliteOpen(Open),
}

/// A transaction of SQLite whose beginning and end travel with its statements. One that nobody ends is undone with its
/// connection, whatever that is about.
#[derive(Debug)]
struct Open {
    conn: PoolConnection<Sqlite>,
    ended: bool,
}

impl Open {
    async fn end(mut self, queries: Vec<Query<'_>>, word: &'static str) -> Result<Rows, Error> {
        let rows = on_sqlite(&mut self.conn, "", queries, word).await?;
        self.ended = true;
        Ok(rows)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.ended {
            self.conn.close_on_drop();
        }
    }
}

/// The database's own connection.
pub(super) enum Side<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Conn {
    pub(super) fn side(&mut self) -> Side<'_> {
        match &mut self.0 {
            Inner::SqliteHeld(conn) => Side::Sqlite(conn),
            Inner::PostgresHeld(conn) => Side::Postgres(conn),
            Inner::SqliteTx(tx) => Side::Sqlite(tx),
            Inner::PostgresTx(tx) => Side::Postgres(tx),
            Inner::SqliteOpen(open) => Side::Sqlite(&mut open.conn),
        }
    }
}

/// A connection of the pool; given back when dropped.
#[derive(Debug)]
pub struct Held(Conn);

impl Held {
    pub(crate) fn postgres(conn: PoolConnection<Postgres>) -> Self {
        Self(Conn(Inner::PostgresHeld(conn)))
    }

    /// Has it closed when dropped, not given back.
    pub(crate) fn close_on_drop(&mut self) {
        match &mut self.0.0 {
            Inner::SqliteHeld(conn) => conn.close_on_drop(),
            Inner::PostgresHeld(conn) => conn.close_on_drop(),
            Inner::SqliteTx(_) | Inner::PostgresTx(_) => {}
        }
    }
}

impl Deref for Held {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
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
