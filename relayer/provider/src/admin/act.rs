use serde_json::{Value, json};

use super::error::AdminError;
use crate::audit::{Actor, Entry, append};
use crate::clock;
use crate::db::{Conn, Transaction};
use crate::store::{Store, StoreError};

/// A privileged act: what it changes and its row in the audit log are one transaction.
#[derive(Debug)]
pub struct Act {
    store: Store,
    tx: Transaction,
    by: Actor,
    action: &'static str,
    target: String,
}

impl Act {
    /// Begins it. The store takes no other writes until it ends.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn begin(
        store: &Store,
        by: &Actor,
        action: &'static str,
        target: impl Into<String>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            store: store.clone(),
            tx: store.begin().await?,
            by: by.clone(),
            action,
            target: target.into(),
        })
    }

    /// For what it changes.
    pub fn conn(&mut self) -> &mut Conn {
        &mut self.tx
    }

    /// Says more exactly what it is done to.
    pub fn aim(&mut self, target: impl Into<String>) {
        self.target = target.into();
    }

    fn entry(&self, result: &'static str, detail: Value) -> Entry {
        Entry {
            at: clock::now_ms(),
            by: self.by.clone(),
            action: self.action,
            target: self.target.clone(),
            result,
            detail,
        }
    }

    /// Commits what was done with its row, or rolls back what was refused or failed and appends that.
    ///
    /// # Errors
    /// As given; or if the store fails.
    pub async fn end<T>(mut self, done: Result<T, AdminError>, detail: Value) -> Result<T, AdminError> {
        match done {
            Ok(value) => {
                let entry = self.entry("done", detail);
                append(&mut self.tx, &entry).await?;
                self.tx.commit().await.map_err(StoreError::from)?;
                Ok(value)
            }
            Err(error) => {
                let (result, reason) = error.recorded();
                let entry = self.entry(result, reason);
                let Self { store, tx, .. } = self;
                tx.rollback().await.map_err(StoreError::from)?;
                let mut tx = store.begin().await?;
                append(&mut tx, &entry).await?;
                tx.commit().await.map_err(StoreError::from)?;
                Err(error)
            }
        }
    }

    /// Commits what was done, or rolls it back, without a row: for what nobody has decided.
    ///
    /// # Errors
    /// As given; or if the store fails.
    pub async fn end_unrecorded<T>(self, done: Result<T, AdminError>) -> Result<T, AdminError> {
        let ended = match &done {
            Ok(_) => self.tx.commit().await,
            Err(_) => self.tx.rollback().await,
        };
        ended.map_err(StoreError::from)?;
        done
    }

    /// Appends a row that has no other change with it: something is begun, or has ended, elsewhere.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn note(
        store: &Store,
        by: &Actor,
        (action, target): (&'static str, String),
        result: &'static str,
        detail: Value,
    ) -> Result<(), StoreError> {
        let mut act = Self::begin(store, by, action, target).await?;
        let entry = act.entry(result, detail);
        append(&mut act.tx, &entry).await?;
        act.tx.commit().await?;
        Ok(())
    }
}

impl AdminError {
    /// How the audit log tells it.
    pub(super) fn recorded(&self) -> (&'static str, Value) {
        match self {
            Self::Refused(r) | Self::Missing(r) => {
                ("refused", json!({ "code": r.code, "message": r.message }))
            }
            other => ("failed", json!({ "message": other.to_string() })),
        }
    }
}
