use super::StoreError;
use crate::db::Row;

impl StoreError {
    /// The column whose value cannot be read, if that is what is wrong.
    pub(crate) fn column(&self) -> Option<&str> {
        match self {
            Self::Value { column, .. } => Some(*column),
            // The name stands in quotes there.
            Self::Sql(sqlx::Error::ColumnDecode { index, .. }) => Some(index.trim_matches('"')),
            _ => None,
        }
    }

    /// Whether a row, and not the store, is what fails.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.column().is_some()
    }
}

/// A count or time as the stores' integer.
pub(crate) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// the stores' integer as a count or time.
pub(crate) fn uint(row: &Row, column: &'static str) -> Result<u64, StoreError> {
    let n: i64 = row.try_get(column)?;
    u64::try_from(n).map_err(|_| StoreError::Value { table: "", column })
}

/// The same where it may be absent.
pub(crate) fn opt_uint(row: &Row, column: &'static str) -> Result<Option<u64>, StoreError> {
    let n: Option<i64> = row.try_get(column)?;
    n.map(|n| u64::try_from(n).map_err(|_| StoreError::Value { table: "", column }))
        .transpose()
}

/// the stores' integer as a sequence number.
pub(crate) fn sequence(row: &Row, column: &'static str) -> Result<u32, StoreError> {
    u32::try_from(uint(row, column)?).map_err(|_| StoreError::Value { table: "", column })
}

/// Bytes of a fixed length.
pub(crate) fn bytes<const N: usize>(row: &Row, column: &'static str) -> Result<[u8; N], StoreError> {
    let b: Vec<u8> = row.try_get(column)?;
    b.try_into().map_err(|_| StoreError::Value { table: "", column })
}

/// Text with a checked form.
pub(crate) fn text<T: std::str::FromStr>(row: &Row, column: &'static str) -> Result<T, StoreError> {
    let s: String = row.try_get(column)?;
    s.parse().map_err(|_| StoreError::Value { table: "", column })
}
