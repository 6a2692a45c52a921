use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::Serialize;

use crate::db::{self, Conn, Pool, Row};
use crate::ops::Severity;
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
    pub(super) severity: String,
    pub(super) summary: String,
    /// UNIX milliseconds.
    pub(super) started_at: u64,
    pub(super) raised_at: u64,
    pub(super) ended_at: Option<u64>,
    pub(super) cleared_at: Option<u64>,
}

/// An alert as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlertRow {
    /// Which kind.
    pub name: String,
    /// `critical` or `warning`.
    pub severity: String,
    /// The cluster, if it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The node, if it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// For people.
    pub summary: String,
    /// Since when.
    pub started_at: String,
    /// Until when; absent: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        "INSERT INTO alert (key, name, cluster_id, node_id, severity, summary, started_at, raised_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (key) DO UPDATE SET summary = excluded.summary,
           started_at = CASE WHEN alert.ended_at IS NULL THEN alert.started_at ELSE excluded.started_at END,
           raised_at = CASE WHEN alert.ended_at IS NULL THEN alert.raised_at ELSE excluded.raised_at END,
           ended_at = NULL, cleared_at = NULL",
    )
    .bind(&a.key)
    .bind(&a.name)
    .bind(&a.cluster)
    .bind(&a.node)
    .bind(&a.severity)
    .bind(&a.summary)
    .bind(int(a.started_at))
    .bind(int(a.raised_at))
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

/// What is wrong now, of nodes or of the daemon itself.
pub(super) async fn active(conn: &mut Conn, of_nodes: bool) -> Result<Vec<Alert>, StoreError> {
    let rows = db::query(
        "SELECT * FROM alert WHERE ended_at IS NULL AND CASE WHEN node_id <> '' THEN 1 ELSE 0 END = ?",
    )
    .bind(of_nodes)
    .fetch_all(conn)
    .await?;
    rows.iter().map(Alert::read).collect()
}

/// What is wrong, or has ended and is still to be told, for operators: the newest first.
///
/// # Errors
/// If the store fails.
pub async fn list(pool: &Pool) -> Result<Vec<AlertRow>, StoreError> {
    let rows = db::query("SELECT * FROM alert ORDER BY started_at DESC, key LIMIT 10000")
        .fetch_all(pool)
        .await?;
    let time = |ms: u64| UnixSeconds(ms / 1000).to_string();
    rows.iter()
        .map(|row| {
            let alert = Alert::read(row)?;
            let some = |text: String| (!text.is_empty()).then_some(text);
            Ok(AlertRow {
                name: alert.name,
                severity: alert.severity,
                cluster_id: some(alert.cluster),
                node_id: some(alert.node),
                summary: alert.summary,
                started_at: time(alert.started_at),
                ended_at: alert.ended_at.map(time),
            })
        })
        .collect()
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
