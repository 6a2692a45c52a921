//! The message that is on its way to a receiver. It is written with what it tells in one commit, and goes again, the same bytes
//! under the same id, until the receiver has taken it; to an Alertmanager, which knows no ids, with the end as of the sending.

use super::body::{self, Site};
use super::book::Alert;
use super::group::{Told, choose};
use super::sink::Kind;
use crate::db::{self, Row};
use crate::store::{Store, StoreError, int, uint};
use crate::{clock, fault};

/// Alerts looked at for one message.
const MOST_READ: i64 = 5_000;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) body: String,
    /// UNIX milliseconds.
    pub(super) created_at: u64,
    pub(super) attempts: u32,
    pub(super) next_at: u64,
}

/// What is on its way to a receiver; if nothing is, what there is to tell becomes it.
pub(super) async fn next(
    store: &Store,
    sink: &str,
    kind: Kind,
    site: &Site,
    wait_ms: u64,
) -> Result<Option<Message>, StoreError> {
    let row = db::query("SELECT * FROM alert_outbox WHERE sink = ?")
        .bind(sink)
        .fetch_optional(store.reader())
        .await?;
    if let Some(row) = row {
        return Ok(Some(Message {
            id: row.try_get("id")?,
            body: row.try_get("body")?,
            created_at: uint(&row, "created_at")?,
            attempts: u32::try_from(uint(&row, "attempts")?).unwrap_or(u32::MAX),
            next_at: uint(&row, "next_at")?,
        }));
    }
    let now = clock::now_ms();
    // Looked at without the lock first: mostly there is nothing.
    let open = open(store, sink).await?;
    let Some(group) = choose(open, wait_ms, body::most(kind), now) else {
        return Ok(None);
    };
    let id = hex::encode(clock::random::<16>().map_err(std::io::Error::other)?);
    let message = Message {
        body: body::write(kind, site, &id, &group, now),
        id,
        created_at: now,
        attempts: 0,
        next_at: now,
    };
    let mut tx = store.begin().await?;
    db::query(
        "INSERT INTO alert_outbox (sink, id, body, created_at, attempts, next_at) VALUES (?, ?, ?, ?, 0, ?)",
    )
    .bind(sink)
    .bind(&message.id)
    .bind(&message.body)
    .bind(int(now))
    .bind(int(now))
    .execute(&mut *tx)
    .await?;
    for alert in &group.alerts {
        db::query(
            "INSERT INTO alert_told (sink, key, state) VALUES (?, ?, ?)
             ON CONFLICT (sink, key) DO UPDATE SET state = excluded.state",
        )
        .bind(sink)
        .bind(&alert.key)
        .bind(group.status.as_str())
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    fault::point("alert.queued");
    Ok(Some(message))
}

/// Alerts of which the receiver has not been told all.
async fn open(store: &Store, sink: &str) -> Result<Vec<(Alert, Told)>, StoreError> {
    let rows = db::query(
        "SELECT a.*, coalesce(t.state, '') AS told FROM alert a
         LEFT JOIN alert_told t ON t.sink = ? AND t.key = a.key
         WHERE coalesce(t.state, '') <> CASE WHEN a.ended_at IS NULL THEN 'firing' ELSE 'resolved' END
         ORDER BY a.raised_at LIMIT ?",
    )
    .bind(sink)
    .bind(MOST_READ)
    .fetch_all(store.reader())
    .await?;
    let read = |row: &Row| -> Result<(Alert, Told), StoreError> {
        let told: String = row.try_get("told")?;
        let told = match told.as_str() {
            "firing" => Told::Firing,
            "resolved" => Told::Resolved,
            _ => Told::Nothing,
        };
        Ok((Alert::read(row)?, told))
    };
    rows.iter().map(read).collect()
}

/// Alerts that a receiver has been told of and that go on.
pub(super) async fn standing(store: &Store, sink: &str) -> Result<Vec<Alert>, StoreError> {
    let rows = db::query(
        "SELECT a.* FROM alert a JOIN alert_told t ON t.sink = ? AND t.key = a.key
         WHERE t.state = 'firing' AND a.ended_at IS NULL LIMIT ?",
    )
    .bind(sink)
    .bind(MOST_READ)
    .fetch_all(store.reader())
    .await?;
    rows.iter().map(Alert::read).collect()
}

/// The receiver has it.
pub(super) async fn delivered(store: &Store, sink: &str, id: &str) -> Result<(), StoreError> {
    fault::point("alert.sent");
    dropped(store, sink, id).await
}

/// It goes no more: what comes after it does.
pub(super) async fn dropped(store: &Store, sink: &str, id: &str) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    db::query("DELETE FROM alert_outbox WHERE sink = ? AND id = ?")
        .bind(sink)
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// The receiver has not taken it: it goes again at `next_at`.
pub(super) async fn failed(store: &Store, sink: &str, id: &str, next_at: u64) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    db::query("UPDATE alert_outbox SET attempts = attempts + 1, next_at = ? WHERE sink = ? AND id = ?")
        .bind(int(next_at))
        .bind(sink)
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// Forgets what was for receivers that are no longer configured.
pub(super) async fn keep_only(store: &Store, sinks: &[&str]) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    let rows = db::query("SELECT sink FROM alert_told UNION SELECT sink FROM alert_outbox");
    for row in rows.fetch_all(&mut *tx).await? {
        let sink: String = row.try_get("sink")?;
        if sinks.contains(&sink.as_str()) {
            continue;
        }
        for sql in [
            "DELETE FROM alert_told WHERE sink = ?",
            "DELETE FROM alert_outbox WHERE sink = ?",
        ] {
            db::query(sql).bind(&sink).execute(&mut *tx).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}
