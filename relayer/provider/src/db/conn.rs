use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Error, Postgres, Sqlite};

use super::writer::Open;

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
pub struct Conn(pub(super) Inner);

#[derive(Debug)]
pub(super) enum Inner {
    SqliteHeld(PoolConnection<Sqlite>),
    PostgresHeld(PoolConnection<Postgres>),
    SqliteTx(Open),
    PostgresTx(sqlx::Transaction<'static, Postgres>),
}

/// The database's own connection.
pub(super) enum Side<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Conn {
    pub(super) fn side(&mut self) -> Result<Side<'_>, Error> {
        Ok(match &mut self.0 {
            Inner::SqliteHeld(conn) => Side::Sqlite(conn),
            Inner::PostgresHeld(conn) => Side::Postgres(conn),
            Inner::SqliteTx(open) => Side::Sqlite(open.conn()?),
            Inner::PostgresTx(tx) => Side::Postgres(tx),
        })
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
