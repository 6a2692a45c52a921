use serde_json::{Value, json};

use super::error::AdminError;
use crate::audit::{self, Actor, Entry, Head};
use crate::clock;
use crate::db::{Conn, Query, Rows, Transaction};
use crate::store::{Store, StoreError};

/// A privileged act: what it changes and its row in the audit log are one transaction.
#[derive(Debug)]
pub struct Act {
    store: Store,
    tx: Transaction,
    /// Where the log ends until then.
    head: Head,
    /// What is done last.
    last: Vec<Query<'static>>,
    /// What the log says after its row.
    also: Vec<Entry>,
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
        Ok(Self::asking(store, by, action, target, Vec::new()).await?.0)
    }

    /// The same with its first questions, and what they say.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn asking(
        store: &Store,
        by: &Actor,
        action: &'static str,
        target: impl Into<String>,
        mut questions: Vec<Query<'_>>,
    ) -> Result<(Self, Rows), StoreError> {
        questions.push(audit::ask_head());
        let (tx, mut rows) = store.begin_together(questions).await?;
        let act = Self {
            store: store.clone(),
            tx,
            head: audit::told_head(&rows.pop().unwrap_or_default())?,
            last: Vec::new(),
            also: Vec::new(),
            by: by.clone(),
            action,
            target: target.into(),
        };
        Ok((act, rows))
    }

    /// What is done when all else is: with the commit, and only then.
    pub fn last(&mut self, query: Query<'static>) {
        self.last.push(query);
    }

    /// What follows from it has a row of its own after its.
    pub fn also(&mut self, entry: Entry) {
        self.also.push(entry);
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
    pub async fn end<T>(self, done: Result<T, AdminError>, detail: Value) -> Result<T, AdminError> {
        match done {
            Ok(value) => {
                let (store, by) = (self.store.clone(), self.by.clone());
                let what = (self.action, self.target.clone());
                match self.keep("done", detail).await {
                    Ok(()) => Ok(value),
                    Err(e) => {
                        // Only the database's own word says that nothing was kept; it may be the store that is at its end.
                        if matches!(e, StoreError::Sql(sqlx::Error::Database(_))) {
                            let why = json!({ "message": e.to_string() });
                            Self::note(&store, &by, what, "failed", why).await.ok();
                        }
                        Err(e.into())
                    }
                }
            }
            Err(error) => {
                let (result, reason) = error.recorded();
                let Self {
                    store,
                    tx,
                    by,
                    action,
                    target,
                    ..
                } = self;
                tx.rollback().await.map_err(StoreError::from)?;
                Self::note(&store, &by, (action, target), result, reason).await?;
                Err(error)
            }
        }
    }

    /// The last statements, the row and the commit.
    async fn keep(mut self, result: &'static str, detail: Value) -> Result<(), StoreError> {
        let first = self.entry(result, detail);
        let at = first.at;
        let also = self.also.drain(..).map(|e| Entry { at, ..e });
        let entries: Vec<_> = std::iter::once(first).chain(also).collect();
        self.last.extend(audit::after(self.head, &entries));
        self.tx.commit_together(self.last).await?;
        Ok(())
    }

    /// Commits what was done, or rolls it back, without a row: for what nobody has decided.
    ///
    /// # Errors
    /// As given; or if the store fails.
    pub async fn end_unrecorded<T>(self, done: Result<T, AdminError>) -> Result<T, AdminError> {
        let ended = match &done {
            Ok(_) => self.tx.commit_together(self.last).await.map(drop),
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
        Self::begin(store, by, action, target)
            .await?
            .keep(result, detail)
            .await
    }
}

impl AdminError {
    /// How the audit log tells it.
    pub(super) fn recorded(&self) -> (&'static str, Value) {
        match self {
            Self::Refused(r) | Self::Missing(r) => {
                ("refused", json!({ "code": r.code, "message": r.message }))
            }
            Self::Unknown { what, tx, last_block } => (
                "unknown",
                json!({ "message": what, "tx": tx, "last_block": last_block }),
            ),
            other => ("failed", json!({ "message": other.to_string() })),
        }
    }
}
