use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Error, Row as _, TypeInfo as _, ValueRef as _};

/// A row of either database.
#[derive(Debug)]
pub enum Row {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of PostgreSQL.
    Postgres(PgRow),
}

impl Row {
    /// A column by name or place.
    ///
    /// # Errors
    /// If there is none, or its value is of another kind.
    pub fn try_get<T: Get, I>(&self, column: I) -> Result<T, Error>
    where
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        match self {
            Self::Sqlite(row) => T::of_sqlite(row, column),
            Self::Postgres(row) => T::of_postgres(row, column),
        }
    }

    /// The same, in tests.
    #[cfg(test)]
    pub(crate) fn get<T: Get, I>(&self, column: I) -> T
    where
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        self.try_get(column).unwrap()
    }
}

/// What a column can be read as.
pub trait Get: Sized {
    /// From a row of SQLite.
    ///
    /// # Errors
    /// If there is no such column, or its value is of another kind.
    fn of_sqlite<I: ColumnIndex<SqliteRow>>(row: &SqliteRow, column: I) -> Result<Self, Error>;

    /// From a row of PostgreSQL.
    ///
    /// # Errors
    /// If there is no such column, or its value is of another kind.
    fn of_postgres<I: ColumnIndex<PgRow>>(row: &PgRow, column: I) -> Result<Self, Error>;
}

macro_rules! the_same_in_both {
    ($($kind:ty),+) => {$(
        impl Get for $kind {
            fn of_sqlite<I: ColumnIndex<SqliteRow>>(row: &SqliteRow, column: I) -> Result<Self, Error> {
                row.try_get(column)
            }

            fn of_postgres<I: ColumnIndex<PgRow>>(row: &PgRow, column: I) -> Result<Self, Error> {
                row.try_get(column)
            }
        }
    )+};
}

the_same_in_both!(String, Option<String>, Vec<u8>, Option<Vec<u8>>);

impl Get for Option<i64> {
    fn of_sqlite<I: ColumnIndex<SqliteRow>>(row: &SqliteRow, column: I) -> Result<Self, Error> {
        row.try_get(column)
    }

    /// `length` gives 32 bits, a comparison yes or no; columns have 64.
    fn of_postgres<I: ColumnIndex<PgRow>>(row: &PgRow, column: I) -> Result<Self, Error> {
        let at = column.index(row)?;
        let kind = row.try_get_raw(at)?.type_info().name().to_owned();
        match kind.as_str() {
            "INT4" => Ok(row.try_get::<Option<i32>, _>(at)?.map(i64::from)),
            "BOOL" => Ok(row.try_get::<Option<bool>, _>(at)?.map(i64::from)),
            _ => row.try_get(at),
        }
    }
}

impl Get for i64 {
    fn of_sqlite<I: ColumnIndex<SqliteRow>>(row: &SqliteRow, column: I) -> Result<Self, Error> {
        row.try_get(column)
    }

    fn of_postgres<I: ColumnIndex<PgRow>>(row: &PgRow, column: I) -> Result<Self, Error> {
        let at = column.index(row)?;
        <Option<i64>>::of_postgres(row, at)?.ok_or_else(|| Error::ColumnDecode {
            index: at.to_string(),
            source: "is null".into(),
        })
    }
}

impl Get for bool {
    fn of_sqlite<I: ColumnIndex<SqliteRow>>(row: &SqliteRow, column: I) -> Result<Self, Error> {
        row.try_get(column)
    }

    fn of_postgres<I: ColumnIndex<PgRow>>(row: &PgRow, column: I) -> Result<Self, Error> {
        i64::of_postgres(row, column).map(|n| n != 0)
    }
}
