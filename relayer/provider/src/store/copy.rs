use std::path::Path;

use super::{Store, StoreError};
use crate::db;

impl Store {
    /// Copies the whole database, as of one moment, into a new file. Others may write meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; a file that is there is not overwritten.
    pub async fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        if self.is_shared() {
            return Err(StoreError::Elsewhere);
        }
        let path = path
            .to_str()
            .ok_or_else(|| std::io::Error::other("the path of a copy must be text"))?;
        db::query("VACUUM INTO ?").bind(path).execute(&self.read).await?;
        Ok(())
    }

    /// About how many bytes such a copy has: what is free in the database is not copied.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn copy_size(&self) -> Result<u64, StoreError> {
        if self.is_shared() {
            return Err(StoreError::Elsewhere);
        }
        let row = db::query(
            "SELECT (page_count - freelist_count) * page_size AS size
             FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
        )
        .fetch_one(&self.read)
        .await?;
        super::uint(&row, "size")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_is_as_large_as_is_said_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("p.db")).await.unwrap();
        let empty = store.copy_size().await.unwrap();
        let mut tx = store.begin().await.unwrap();
        db::query("INSERT INTO cluster (cluster_id, record) VALUES ('c', ?)")
            .bind("x".repeat(1 << 20))
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let said = store.copy_size().await.unwrap();
        assert!(said > empty + (1 << 20), "{empty} {said}");
        let copy = dir.path().join("copy.db");
        store.copy_to(&copy).await.unwrap();
        let size = std::fs::metadata(&copy).unwrap().len();
        assert!(size.abs_diff(said) < 1 << 19, "{size} {said}");
        // What is removed needs no room.
        let mut tx = store.begin().await.unwrap();
        db::query("DELETE FROM cluster").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        assert!(store.copy_size().await.unwrap() < said - (1 << 19));
    }
}
