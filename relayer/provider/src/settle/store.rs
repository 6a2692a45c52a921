use std::collections::BTreeMap;

use hpc_chain::gas::GasPrice;
use hpc_chain::hash::TxHash;
use hpc_chain::settle::{BatchId, End, State};
use serde::{Deserialize, Serialize};

use super::sizing::Learnt;
use crate::db::{self, Conn, Pool};
use crate::store::{StoreError, int, opt_uint, uint};

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reports of agents.
    Reports,
    /// Registrations of nodes.
    Register,
    /// Stepping of silent nodes.
    Sweep,
    /// Removal of nodes that have been deregistered for long.
    Prune,
}

impl Kind {
    /// The word in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::Register => "register",
            Self::Sweep => "sweep",
            Self::Prune => "prune",
        }
    }

    /// The word in the store, where the two that nothing is bound to are one.
    fn stored(self) -> &'static str {
        match self {
            Self::Prune => Self::Sweep.as_str(),
            other => other.as_str(),
        }
    }

    fn read(word: &str) -> Option<Self> {
        [Self::Reports, Self::Register, Self::Sweep]
            .into_iter()
            .find(|k| k.as_str() == word)
    }
}

/// The word for a transaction's end.
#[must_use]
pub fn end_word(end: &End) -> &'static str {
    match end {
        End::Included(_) => "included",
        End::Failed(_) => "failed",
        End::Expired { .. } => "expired",
        End::Consumed { .. } => "consumed",
    }
}

fn bad(table: &'static str, column: &'static str) -> StoreError {
    StoreError::Value { table, column }
}

/// The settlement machine's state of a signing key, as last persisted.
///
/// # Errors
/// If the store fails or its text is not readable.
pub(super) async fn load_state(pool: &Pool, signer: &str) -> Result<Option<State>, StoreError> {
    let text = state_text(pool, signer).await?;
    text.map(|text| read_state(&text)).transpose()
}

async fn state_text(pool: &Pool, signer: &str) -> Result<Option<String>, StoreError> {
    let row = db::query("SELECT state FROM signer WHERE signer = ?")
        .bind(signer)
        .fetch_optional(pool)
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// What stands beside the machine's state, in the same text.
#[derive(Debug, Default, Deserialize)]
struct Beside {
    #[serde(default)]
    gas_price: Option<GasPrice>,
    /// When it was first paid, UNIX milliseconds; earlier versions did not keep it.
    #[serde(default)]
    gas_price_since: Option<u64>,
}

impl Beside {
    /// What cannot be read is learnt anew.
    fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[derive(Debug, Serialize)]
struct Stored<'a> {
    #[serde(flatten)]
    state: &'a State,
    #[serde(skip_serializing_if = "Option::is_none")]
    gas_price: Option<&'a GasPrice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gas_price_since: Option<u64>,
}

/// The gas price that a signing key has learnt, if it is above the one that was configured then.
///
/// # Errors
/// If the store fails.
pub(super) async fn learnt(pool: &Pool, signer: &str) -> Result<Option<Learnt>, StoreError> {
    let text = state_text(pool, signer).await?.unwrap_or_default();
    let Beside {
        gas_price,
        gas_price_since: since,
    } = Beside::read(&text);
    Ok(gas_price.map(|price| Learnt { price, since }))
}

/// What each signing key pays for a unit of gas, by its name, where that is above the configured price.
///
/// # Errors
/// If the store fails.
pub async fn learnt_prices(pool: &Pool) -> Result<BTreeMap<String, GasPrice>, StoreError> {
    let mut prices = BTreeMap::new();
    let rows = db::query("SELECT signer, state FROM signer")
        .fetch_all(pool)
        .await?;
    for row in rows {
        let (signer, text): (String, String) = (row.try_get("signer")?, row.try_get("state")?);
        if let Some(price) = Beside::read(&text).gas_price {
            prices.insert(signer, price);
        }
    }
    Ok(prices)
}

pub(super) fn read_state(text: &str) -> Result<State, StoreError> {
    serde_json::from_str(text).map_err(|_| bad("signer", "state"))
}

pub(super) async fn save_state(
    conn: &mut Conn,
    (signer, address): (&str, &str),
    state: &State,
    learnt: Option<&Learnt>,
    now_ms: u64,
) -> Result<(), StoreError> {
    let stored = Stored {
        state,
        gas_price: learnt.map(|learnt| &learnt.price),
        gas_price_since: learnt.and_then(|learnt| learnt.since),
    };
    let text = serde_json::to_string(&stored).map_err(|_| bad("signer", "state"))?;
    db::query(
        "INSERT INTO signer (signer, address, state, updated_at) VALUES (?, ?, ?, ?)
         ON CONFLICT (signer) DO UPDATE SET address = excluded.address, state = excluded.state,
           updated_at = excluded.updated_at",
    )
    .bind(signer)
    .bind(address)
    .bind(text)
    .bind(int(now_ms))
    .execute(conn)
    .await?;
    Ok(())
}

/// A row for a transaction that is about to be planned.
pub(super) async fn open_batch(
    conn: &mut Conn,
    signer: &str,
    kind: Kind,
    now_ms: u64,
) -> Result<BatchId, StoreError> {
    let row = db::query("INSERT INTO batch (signer, kind, created_at) VALUES (?, ?, ?) RETURNING id")
        .bind(signer)
        .bind(kind.stored())
        .bind(int(now_ms))
        .fetch_one(conn)
        .await?;
    uint(&row, "id").map(BatchId)
}

/// Forgets transactions that were planned and never signed.
pub(super) async fn drop_unsigned(
    conn: &mut Conn,
    signer: &str,
    only: Option<BatchId>,
) -> Result<(), StoreError> {
    db::query("DELETE FROM batch WHERE signer = ?1 AND hash IS NULL AND (?2 IS NULL OR id = ?2)")
        .bind(signer)
        .bind(only.map(|b| int(b.0)))
        .execute(conn)
        .await?;
    Ok(())
}

/// What was signed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignedRow {
    pub(super) hash: TxHash,
    pub(super) sequence: u64,
    pub(super) timeout_height: u64,
    pub(super) gas_limit: u64,
}

pub(super) async fn record_signed(
    conn: &mut Conn,
    batch: BatchId,
    signed: &SignedRow,
) -> Result<(), StoreError> {
    db::query("UPDATE batch SET hash = ?, sequence = ?, timeout_height = ?, gas_limit = ? WHERE id = ?")
        .bind(signed.hash.to_string())
        .bind(signed.sequence.to_string())
        .bind(int(signed.timeout_height))
        .bind(int(signed.gas_limit))
        .bind(int(batch.0))
        .execute(conn)
        .await?;
    Ok(())
}

/// Kind and hash of a transaction; none if its end is on record already.
pub(super) async fn unended(
    pool: &Pool,
    batch: BatchId,
) -> Result<Option<(Kind, Option<TxHash>)>, StoreError> {
    let row = db::query("SELECT kind, hash FROM batch WHERE id = ? AND ended IS NULL")
        .bind(int(batch.0))
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let kind: String = row.try_get("kind")?;
    let hash: Option<String> = row.try_get("hash")?;
    let kind = Kind::read(&kind).ok_or(bad("batch", "kind"))?;
    Ok(Some((kind, hash.and_then(|h| h.parse().ok()))))
}

/// Records how a transaction ended.
pub(super) async fn record_end(
    conn: &mut Conn,
    batch: BatchId,
    end: &End,
    now_ms: u64,
) -> Result<(), StoreError> {
    let (code, height, log) = match end {
        End::Included(i) | End::Failed(i) => (Some(i.code), i.height, Some(i.log.as_str())),
        End::Expired { height } | End::Consumed { height, .. } => (None, *height, None),
    };
    db::query("UPDATE batch SET ended_at = ?, ended = ?, code = ?, height = ?, log = ? WHERE id = ?")
        .bind(int(now_ms))
        .bind(end_word(end))
        .bind(code.map(i64::from))
        .bind(int(height))
        .bind(log)
        .bind(int(batch.0))
        .execute(conn)
        .await?;
    Ok(())
}

/// Forgets transactions that ended before `before_ms`.
///
/// # Errors
/// If the store fails.
pub async fn prune_batches(conn: &mut Conn, before_ms: u64) -> Result<(), StoreError> {
    db::query("DELETE FROM batch WHERE ended_at < ?")
        .bind(int(before_ms))
        .execute(conn)
        .await?;
    Ok(())
}

/// When each cluster's last sweep was signed is not stored: a sweep is idempotent.
///
/// How many transactions of a signer have not ended.
///
/// # Errors
/// If the store fails.
pub async fn open_transactions(pool: &Pool) -> Result<u64, StoreError> {
    let row = db::query("SELECT count(*) AS n FROM batch WHERE hash IS NOT NULL AND ended IS NULL")
        .fetch_one(pool)
        .await?;
    Ok(opt_uint(&row, "n")?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_that_an_earlier_version_stored_is_read() {
        let state = r#"{"account":null,"job":null,"gas_price":"0.04stake"}"#;
        assert!(read_state(state).unwrap().is_idle());
        let read = Beside::read(state);
        assert_eq!(read.gas_price.unwrap().to_string(), "0.04stake");
        assert_eq!(read.gas_price_since, None);
    }
}
