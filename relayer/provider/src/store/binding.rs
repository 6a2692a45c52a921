use super::{Store, StoreError};
use crate::db::{self, Query, Row};

/// Asks for the chain and contract that the store belongs to.
pub fn ask_bound() -> Query<'static> {
    db::query("SELECT chain_id, contract FROM binding")
}

/// What [`ask_bound`] says; none in a new store.
///
/// # Errors
/// [`StoreError`].
pub fn told_bound(rows: &[Row]) -> Result<Option<(String, String)>, StoreError> {
    rows.first()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .transpose()
}

impl Store {
    /// Binds a new store to a contract, and refuses one that is bound to another.
    ///
    /// # Errors
    /// [`StoreError::Bound`].
    pub async fn bind(&self, chain_id: &str, contract: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        db::query(
            "INSERT INTO binding (one, chain_id, contract) VALUES (1, ?, ?) ON CONFLICT (one) DO NOTHING",
        )
        .bind(chain_id)
        .bind(contract)
        .execute(&mut *tx)
        .await?;
        // As long as nothing refers to a contract, a slip in the configuration can be corrected.
        db::query(
            "UPDATE binding SET chain_id = ?, contract = ?, params = NULL
             WHERE NOT EXISTS (SELECT 1 FROM token) AND NOT EXISTS (SELECT 1 FROM node)
               AND NOT EXISTS (SELECT 1 FROM batch) AND NOT EXISTS (SELECT 1 FROM cluster)",
        )
        .bind(chain_id)
        .bind(contract)
        .execute(&mut *tx)
        .await?;
        let row = db::query("SELECT chain_id, contract FROM binding")
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
        told_bound(&ask_bound().fetch_all(&self.read).await?)
    }
}
