//! The log as an admin listener tells it: without the head a reader elsewhere could not know that its end is gone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::{self, Head};
use super::{Broken, Chain, Row};
use crate::db::Pool;
use crate::page::{Page, Window};
use crate::store::StoreError;

/// Rows of the audit log, and where it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// Rows, oldest first.
    pub items: Vec<Row>,
    /// Give this as `after` for what follows; absent: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Where the log ended before these rows were read.
    pub head: AuditHead,
}

/// Where the log ends, as is kept beside its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditHead {
    /// Number of the newest row; 0: none.
    pub seq: u64,
    /// Its digest, lower-case hex; 64 zeros: none.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub digest: String,
}

impl AuditPage {
    /// Up to `limit` rows after the one of this number.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn after(pool: &Pool, after: u64, limit: Option<u32>) -> Result<Self, StoreError> {
        // First: every row that it covers is there when the rows are read.
        let head = rows::head(pool).await?;
        // The cursor is the row's number alone.
        let window = Window { after: None, limit };
        let read = u32::try_from(window.read()).unwrap_or(u32::MAX);
        let found = rows::page(pool, after, read).await?;
        let Page { items, next } = window.cut(found, |row| row.seq.to_string());
        let head = head.into();
        Ok(Self { items, next, head })
    }

    /// The newest rows.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn newest(pool: &Pool, limit: Option<u32>) -> Result<Self, StoreError> {
        let head = rows::head(pool).await?.into();
        let window = Window { after: None, limit };
        let items = rows::newest(pool, window.limit()).await?;
        let next = None;
        Ok(Self { items, next, head })
    }
}

impl From<Head> for AuditHead {
    fn from(head: Head) -> Self {
        Self {
            seq: head.seq,
            digest: hex::encode(head.digest),
        }
    }
}

impl AuditHead {
    /// Whether a log that was followed until nothing came after it is whole. This is the head that came with that nothing.
    ///
    /// # Errors
    /// Says what is wrong with its end.
    pub fn ends(&self, found: &Chain) -> Result<(), Broken> {
        if found.seq != self.seq {
            return Err(Broken::End {
                found: found.seq,
                head: self.seq,
            });
        }
        if hex::encode(found.digest) != self.digest {
            return Err(Broken::Altered { seq: found.seq });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_ends_where_its_head_says_and_as_it_says() {
        let [one, other] = [1, 2].map(|digest| Chain {
            seq: 7,
            digest: [digest; 32],
        });
        let head = AuditHead::from(one);
        head.ends(&one).unwrap();
        assert_eq!(head.ends(&other), Err(Broken::Altered { seq: 7 }));
        let none = Chain::default();
        assert_eq!(head.ends(&none), Err(Broken::End { found: 0, head: 7 }));
        AuditHead::from(none).ends(&none).unwrap();
    }
}
