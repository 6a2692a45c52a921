use std::ops::{Deref, DerefMut};

use sqlx::{Error, Postgres};

use super::conn::{Conn, Inner};
use super::query::Query;
use super::together::{Answers, Rows};
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
        let (open, answers) = Open::begin(writer, queries).await?;
        Ok((Self(Conn(Inner::SqliteTx(open))), answers))
    }

    /// Makes it last, with these as its last statements: all of it, or nothing.
    ///
    /// # Errors
    /// What the database says; after the statements, whether it lasts is unknown.
    pub async fn commit_together(mut self, queries: Vec<Query<'_>>) -> Result<Rows, Error> {
        if let Inner::SqliteTx(open) = self.0.0 {
            return open.commit(queries).await;
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
            Inner::SqliteTx(open) => open.commit(Vec::new()).await.map(drop),
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
