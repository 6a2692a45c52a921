use std::ops::{Deref, DerefMut};

use sqlx::{Error, Postgres};

use super::conn::{Conn, Inner};
use super::query::Query;
use super::together::{Answers, Rows, on_sqlite, rows};
use super::writer::{Open, Writer};

/// A transaction; rolled back when dropped.
#[derive(Debug)]
pub struct Transaction(Conn);

impl Transaction {
    pub(crate) fn postgres(tx: sqlx::Transaction<'static, Postgres>) -> Self {
        Self(Conn(Inner::PostgresTx(tx)))
    }

    /// One that excludes other writers, with its first statements.
    pub(crate) async fn sqlite(writer: &Writer, queries: Vec<Query<'_>>) -> Result<(Self, Answers), Error> {
        let mut open = Open::of(writer).await?;
        let answers = on_sqlite(open.conn()?, "BEGIN IMMEDIATE", queries, "").await?;
        Ok((Self(Conn(Inner::SqliteTx(open))), answers))
    }

    /// Makes it last, with these as its last statements: all of it, or nothing.
    ///
    /// # Errors
    /// What the database says; after the statements, whether it lasts is unknown.
    pub async fn commit_together(mut self, queries: Vec<Query<'_>>) -> Result<Rows, Error> {
        if let Inner::SqliteTx(open) = self.0.0 {
            return end(open, queries).await;
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
            Inner::SqliteTx(open) => end(open, Vec::new()).await.map(drop),
            Inner::PostgresTx(tx) => tx.commit().await,
            Inner::SqliteHeld(_) | Inner::PostgresHeld(_) => Ok(()),
        }
    }

    /// Undoes it.
    ///
    /// # Errors
    /// What the database says.
    pub async fn rollback(self) -> Result<(), Error> {
        match self.0.0 {
            Inner::SqliteTx(open) => {
                open.undo().await;
                Ok(())
            }
            Inner::PostgresTx(tx) => tx.rollback().await,
            Inner::SqliteHeld(_) | Inner::PostgresHeld(_) => Ok(()),
        }
    }
}

/// With these as its last statements.
async fn end(mut open: Open, queries: Vec<Query<'_>>) -> Result<Rows, Error> {
    let answers = on_sqlite(open.conn()?, "", queries, "COMMIT").await?;
    open.ended();
    Ok(rows(answers))
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
