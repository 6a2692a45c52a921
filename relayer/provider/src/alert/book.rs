use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::db::{self, Conn, Pool, Row};
use crate::ops::Severity;
use crate::page::{Page, Window};
use crate::store::{StoreError, int, opt_uint, uint};

/// Alerts of nodes, beside the daemon's own troubles ([`crate::ops::TROUBLES`]).
pub const NAMES: &[(&str, Severity)] = &[
    ("jobs_at_risk", Severity::Critical),
    ("jobs_failed", Severity::Critical),
    ("node_deregistered", Severity::Critical),
    ("node_offline", Severity::Critical),
    ("node_stale", Severity::Warning),
];

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alert {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) cluster: String,
    pub(super) node: String,
    /// The gateway whose own it is, where several share a store; empty: the site's.
    pub(super) instance: String,
    pub(super) severity: String,
    pub(super) summary: String,
    /// UNIX milliseconds.
    pub(super) started_at: u64,
    pub(super) raised_at: u64,
    pub(super) ended_at: Option<u64>,
    pub(super) cleared_at: Option<u64>,
}

/// An alert as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertRow {
    /// Which kind.
    pub name: String,
    /// `critical` or `warning`.
    pub severity: String,
    /// The cluster, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The node, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// The gateway that says so, where several share a store and it is a trouble of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// For people.
    pub summary: String,
    /// Since when.
    pub started_at: String,
    /// Until when; absent: it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

impl Alert {
    /// Of a node.
    pub(super) fn of_node(
        name: &'static str,
        cluster: &ClusterId,
        node: &NodeId,
        summary: String,
        started_at: u64,
        now_ms: u64,
    ) -> Self {
        let severity = NAMES.iter().find(|(n, _)| *n == name).map(|(_, s)| s.as_str());
        Self {
            key: node_key(name, cluster, node),
            name: name.to_owned(),
            cluster: cluster.to_string(),
            node: node.to_string(),
            instance: String::new(),
            severity: severity.unwrap_or_default().to_owned(),
            summary,
            started_at,
            raised_at: now_ms,
            ended_at: None,
            cleared_at: None,
        }
    }

    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            key: row.try_get("key")?,
            name: row.try_get("name")?,
            cluster: row.try_get("cluster_id")?,
            node: row.try_get("node_id")?,
            instance: row.try_get("instance")?,
            severity: row.try_get("severity")?,
            summary: row.try_get("summary")?,
            started_at: uint(row, "started_at")?,
            raised_at: uint(row, "raised_at")?,
            ended_at: opt_uint(row, "ended_at")?,
            cleared_at: opt_uint(row, "cleared_at")?,
        })
    }
}

pub(super) fn node_key(name: &str, cluster: &ClusterId, node: &NodeId) -> String {
    format!("{name}/{cluster}/{node}")
}

/// It is wrong; once is enough. One that had ended, and of which that was not told yet, goes on.
pub(super) async fn raise(conn: &mut Conn, a: &Alert) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO alert (key, name, cluster_id, node_id, instance, severity, summary, started_at, raised_at, seen_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (key) DO UPDATE SET summary = excluded.summary, seen_ms = excluded.seen_ms,
           started_at = CASE WHEN alert.ended_at IS NULL THEN alert.started_at ELSE excluded.started_at END,
           raised_at = CASE WHEN alert.ended_at IS NULL THEN alert.raised_at ELSE excluded.raised_at END,
           ended_at = NULL, cleared_at = NULL",
    )
    .bind(&a.key)
    .bind(&a.name)
    .bind(&a.cluster)
    .bind(&a.node)
    .bind(&a.instance)
    .bind(&a.severity)
    .bind(&a.summary)
    .bind(int(a.started_at))
    .bind(int(a.raised_at))
    .bind(int(a.raised_at))
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets an alert that nobody was told of: it is over, and its end says nothing to anybody.
pub(super) async fn forget_untold(conn: &mut Conn, key: &str) -> Result<(), StoreError> {
    db::query(
        "DELETE FROM alert WHERE key = ? AND NOT EXISTS
           (SELECT 1 FROM alert_told t WHERE t.key = alert.key AND t.state = 'firing')",
    )
    .bind(key)
    .execute(conn)
    .await?;
    Ok(())
}

/// It is right again since `ended_at`.
pub(super) async fn resolve(
    conn: &mut Conn,
    key: &str,
    ended_at: u64,
    now_ms: u64,
) -> Result<(), StoreError> {
    db::query(
        "UPDATE alert SET ended_at = CASE WHEN started_at > ?1 THEN started_at ELSE ?1 END, cleared_at = ?2
         WHERE key = ?3 AND ended_at IS NULL",
    )
    .bind(int(ended_at))
    .bind(int(now_ms))
    .bind(key)
    .execute(conn)
    .await?;
    Ok(())
}

/// What is wrong now of nodes.
pub(super) async fn active(conn: &mut Conn) -> Result<Vec<Alert>, StoreError> {
    let rows = db::query("SELECT * FROM alert WHERE ended_at IS NULL AND node_id <> ''")
        .fetch_all(conn)
        .await?;
    rows.iter().map(Alert::read).collect()
}

/// Troubles that go on, of the site or of one of its gateways.
pub(super) async fn troubles(conn: &mut Conn, instance: &str) -> Result<Vec<Alert>, StoreError> {
    let rows = db::query("SELECT * FROM alert WHERE ended_at IS NULL AND node_id = '' AND instance = ?")
        .bind(instance)
        .fetch_all(conn)
        .await?;
    rows.iter().map(Alert::read).collect()
}

/// A gateway says that its own troubles go on; gives how many are still on record as active.
pub(super) async fn seen(conn: &mut Conn, instance: &str, now_ms: u64) -> Result<u64, StoreError> {
    let done = db::query("UPDATE alert SET seen_ms = ? WHERE instance = ? AND ended_at IS NULL")
        .bind(int(now_ms))
        .bind(instance)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}

/// What a gateway has said that was not heard of since `before_ms` ends with it.
pub(super) async fn end_silent(conn: &mut Conn, before_ms: u64, now_ms: u64) -> Result<(), StoreError> {
    db::query(
        "UPDATE alert SET ended_at = CASE WHEN started_at > ?1 THEN started_at ELSE ?1 END, cleared_at = ?1
         WHERE instance <> '' AND ended_at IS NULL AND seen_ms < ?2",
    )
    .bind(int(now_ms))
    .bind(int(before_ms))
    .execute(conn)
    .await?;
    Ok(())
}

/// What is wrong, or has ended and is still to be told, for operators: the newest first.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn list(pool: &Pool, window: Window<'_>) -> Result<Page<AlertRow>, StoreError> {
    let (time, [key]) = window.newest::<1>()?;
    let rows = db::query(
        "SELECT * FROM alert WHERE (started_at, key) < (?, ?) ORDER BY started_at DESC, key DESC LIMIT ?",
    )
    .bind(int(time))
    .bind(key)
    .bind(window.read())
    .fetch_all(pool)
    .await?;
    let rows = rows.iter().map(Alert::read).collect::<Result<Vec<_>, _>>()?;
    let page = window.cut(rows, |a| format!("{}/{}", a.started_at, a.key));
    let time = |ms: u64| UnixSeconds(ms / 1000).to_string();
    let some = |text: String| (!text.is_empty()).then_some(text);
    Ok(page.map(|alert| AlertRow {
        name: alert.name,
        severity: alert.severity,
        cluster_id: some(alert.cluster),
        node_id: some(alert.node),
        instance: some(alert.instance),
        summary: alert.summary,
        started_at: time(alert.started_at),
        ended_at: alert.ended_at.map(time),
    }))
}

/// Forgets what has ended and has nobody left to be told; what ended within `wait_ms` of its start is told to nobody who
/// has not been told that it began.
pub(super) async fn forget(
    conn: &mut Conn,
    sinks: usize,
    wait_ms: u64,
    now_ms: u64,
) -> Result<(), StoreError> {
    db::query(
        "DELETE FROM alert WHERE ended_at IS NOT NULL AND cleared_at + ?1 <= ?2 AND (
           (ended_at - started_at < ?1 AND NOT EXISTS
             (SELECT 1 FROM alert_told t WHERE t.key = alert.key AND t.state = 'firing'))
           OR (SELECT count(*) FROM alert_told t WHERE t.key = alert.key AND t.state = 'resolved') >= ?3)",
    )
    .bind(int(wait_ms))
    .bind(int(now_ms))
    .bind(i64::try_from(sinks).unwrap_or(i64::MAX))
    .execute(&mut *conn)
    .await?;
    db::query("DELETE FROM alert_told WHERE key NOT IN (SELECT key FROM alert)")
        .execute(conn)
        .await?;
    Ok(())
}
