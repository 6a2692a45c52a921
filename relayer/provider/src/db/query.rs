use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt as _};
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{AssertSqlSafe, Error, Postgres, SqlSafeStr as _, Sqlite};
use tokio::task::yield_now;

use super::conn::{Conn, Held, Pool, Side};
use super::dialect;
use super::row::Row;
use super::value::Value;

/// After so many rows others have the thread.
const A_STRETCH: usize = 128;

/// A statement and its parameters.
#[derive(Debug)]
#[must_use = "a statement does nothing until it is run"]
pub struct Query<'q> {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value<'q>>,
}

/// How many rows a statement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done(u64);

impl Done {
    /// Rows changed, or put in.
    #[must_use]
    pub fn rows_affected(self) -> u64 {
        self.0
    }
}

/// A statement, in our own words: a parameter is never part of its text.
pub fn query<'q>(sql: impl Into<Cow<'static, str>>) -> Query<'q> {
    Query {
        sql: sql.into(),
        values: Vec::new(),
    }
}

/// Where a statement runs.
#[derive(Debug)]
pub enum Target<'c> {
    /// On this connection.
    Conn(&'c mut Conn),
    /// On any that is free.
    Pool(&'c Pool),
}

impl<'c> From<&'c mut Conn> for Target<'c> {
    fn from(conn: &'c mut Conn) -> Self {
        Self::Conn(conn)
    }
}

impl<'c> From<&'c Pool> for Target<'c> {
    fn from(pool: &'c Pool) -> Self {
        Self::Pool(pool)
    }
}

type SqliteQuery = sqlx::query::Query<'static, Sqlite, SqliteArguments>;
type PgQuery = sqlx::query::Query<'static, Postgres, PgArguments>;

impl<'q> Query<'q> {
    /// The next parameter.
    pub fn bind(mut self, value: impl Into<Value<'q>>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Runs it; how many rows it changed.
    ///
    /// # Errors
    /// What the database says.
    pub async fn execute(self, on: impl Into<Target<'_>>) -> Result<Done, Error> {
        match on.into() {
            Target::Conn(conn) => self.execute_on(conn.side()?).await,
            Target::Pool(pool) => {
                let mut held = pool.acquire().await?;
                self.execute_on(held.side()?).await
            }
        }
    }

    pub(super) async fn execute_on(self, side: Side<'_>) -> Result<Done, Error> {
        match side {
            Side::Sqlite(conn) => Ok(Done(self.sqlite().execute(conn).await?.rows_affected())),
            Side::Postgres(conn) => Ok(Done(self.postgres().execute(conn).await?.rows_affected())),
        }
    }

    /// Its first row, if it has one.
    ///
    /// # Errors
    /// What the database says.
    pub async fn fetch_optional(self, on: impl Into<Target<'_>>) -> Result<Option<Row>, Error> {
        match on.into() {
            Target::Conn(conn) => self.optional_on(conn.side()?).await,
            Target::Pool(pool) => {
                let mut held: Held = pool.acquire().await?;
                self.optional_on(held.side()?).await
            }
        }
    }

    async fn optional_on(self, side: Side<'_>) -> Result<Option<Row>, Error> {
        Ok(match side {
            Side::Sqlite(conn) => sqlite_optional(self.sqlite(), conn).await?.map(Row::Sqlite),
            Side::Postgres(conn) => postgres_optional(self.postgres(), conn).await?.map(Row::Postgres),
        })
    }

    /// Its first row.
    ///
    /// # Errors
    /// What the database says, or that there is none.
    pub async fn fetch_one(self, on: impl Into<Target<'_>>) -> Result<Row, Error> {
        self.fetch_optional(on).await?.ok_or(Error::RowNotFound)
    }

    /// All its rows.
    ///
    /// # Errors
    /// What the database says.
    pub async fn fetch_all(self, on: impl Into<Target<'_>>) -> Result<Vec<Row>, Error> {
        match on.into() {
            Target::Conn(conn) => self.all_on(conn.side()?).await,
            Target::Pool(pool) => {
                let mut held = pool.acquire().await?;
                self.all_on(held.side()?).await
            }
        }
    }

    pub(super) async fn all_on(self, side: Side<'_>) -> Result<Vec<Row>, Error> {
        Ok(match side {
            Side::Sqlite(conn) => {
                let rows = self.sqlite().fetch_all(conn).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Side::Postgres(conn) => {
                let rows = self.postgres().fetch_all(conn).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Has `read` see each of its rows. None is kept, and others have the thread after every few: a table may have thousands.
    ///
    /// # Errors
    /// What the database says, or `read`, which sees no more then.
    pub async fn fetch_each<E: From<Error>>(
        self,
        on: impl Into<Target<'_>>,
        read: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<(), E> {
        match on.into() {
            Target::Conn(conn) => self.each_on(conn.side()?, read).await,
            Target::Pool(pool) => {
                let mut held = pool.acquire().await?;
                self.each_on(held.side()?, read).await
            }
        }
    }

    async fn each_on<E: From<Error>>(
        self,
        side: Side<'_>,
        read: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<(), E> {
        match side {
            Side::Sqlite(conn) => in_pieces(self.sqlite().fetch(conn).map_ok(Row::Sqlite), read).await,
            Side::Postgres(conn) => in_pieces(self.postgres().fetch(conn).map_ok(Row::Postgres), read).await,
        }
    }

    pub(super) fn sqlite(self) -> SqliteQuery {
        let sql = match self.sql {
            Cow::Borrowed(sql) => sql.into_sql_str(),
            Cow::Owned(sql) => AssertSqlSafe(sql).into_sql_str(),
        };
        let mut query = sqlx::query(sql);
        for value in self.values {
            query = match value {
                Value::Int(n) => query.bind(n),
                // Moved into the statement: what is bound by reference is copied once more.
                Value::Text(s) => query.bind(s.map(|s| Arc::<str>::from(&*s))),
                Value::Bytes(b) => query.bind(b.map(Cow::into_owned)),
            };
        }
        query
    }

    fn postgres(self) -> PgQuery {
        let mut query = sqlx::query(AssertSqlSafe(dialect::numbered(&self.sql)));
        for value in self.values {
            query = match value {
                Value::Int(n) => query.bind(n),
                Value::Text(s) => query.bind(s.map(dialect::storable)),
                Value::Bytes(b) => query.bind(b.map(Cow::into_owned)),
            };
        }
        query
    }
}

async fn in_pieces<E: From<Error>>(
    rows: impl Stream<Item = Result<Row, Error>>,
    mut read: impl FnMut(&Row) -> Result<(), E>,
) -> Result<(), E> {
    let mut rows = pin!(rows);
    let mut seen: usize = 0;
    while let Some(row) = rows.try_next().await? {
        read(&row)?;
        seen = seen.wrapping_add(1);
        if seen.is_multiple_of(A_STRETCH) {
            yield_now().await;
        }
    }
    Ok(())
}

async fn sqlite_optional(
    query: SqliteQuery,
    conn: &mut SqliteConnection,
) -> Result<Option<sqlx::sqlite::SqliteRow>, Error> {
    query.fetch_optional(conn).await
}

async fn postgres_optional(
    query: PgQuery,
    conn: &mut PgConnection,
) -> Result<Option<sqlx::postgres::PgRow>, Error> {
    query.fetch_optional(conn).await
}
