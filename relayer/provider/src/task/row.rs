use hpc_schema::id::{ClusterId, NodeId, TaskId};
use hpc_schema::task::{TaskHash, TaskState, TaskType};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::db::{self, Conn, Pool, Row};
use crate::page::{Page, Window};
use crate::store::{StoreError, bytes, int, opt_uint, text, uint};

/// Whether a person has to say yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Nobody has to.
    None,
    /// It is not delivered before.
    Waiting,
    /// It was given.
    Given,
}

impl Approval {
    /// The word in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Waiting => "waiting",
            Self::Given => "given",
        }
    }
}

/// A task on record.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskRow {
    /// Unique in its cluster.
    pub task_id: TaskId,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// What is to be done.
    #[serde(rename = "type")]
    pub kind: TaskType,
    /// JSON object.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub params: Box<RawValue>,
    #[serde(skip)]
    pub(super) nonce: [u8; 16],
    /// SHA-256 of what is signed, hex.
    #[serde(serialize_with = "hex_of", deserialize_with = "of_hex")]
    #[schemars(with = "String")]
    pub hash: TaskHash,
    /// Who submitted it.
    pub submitted_by: String,
    /// Whether nobody did, but the daemon by schedule.
    #[serde(skip)]
    pub scheduled: bool,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub expires_at: UnixSeconds,
    /// Whether a person has to say yes.
    pub approval: Approval,
    /// Who did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// How it stands.
    pub state: TaskState,
    /// How often it was delivered.
    pub attempts: u64,
    /// UNIX milliseconds at which it was submitted.
    pub submitted_ms: u64,
    /// UNIX milliseconds of the first delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_ms: Option<u64>,
    /// UNIX milliseconds from which on it may be delivered again.
    #[serde(skip)]
    pub(super) lease_until_ms: Option<u64>,
    /// UNIX milliseconds of the first word that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ms: Option<u64>,
    /// UNIX milliseconds of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Who took it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The newest phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The node's signed result, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub result: Option<Box<RawValue>>,
    /// The agent's key that signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_key: Option<String>,
}

fn hex_of<S: serde::Serializer>(hash: &TaskHash, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&hash.to_hex())
}

fn of_hex<'de, D: serde::Deserializer<'de>>(d: D) -> Result<TaskHash, D::Error> {
    let text = String::deserialize(d)?;
    let mut hash = [0; 32];
    hex::decode_to_slice(&text, &mut hash).map_err(serde::de::Error::custom)?;
    Ok(TaskHash(hash))
}

impl TaskRow {
    /// Makes a new one its node's, delivered for the first time.
    pub fn dispatch(&mut self, now_ms: u64, lease_ms: u64) {
        self.state = TaskState::Dispatched;
        self.attempts = 1;
        self.dispatched_ms = Some(now_ms);
        self.lease_until_ms = Some(now_ms.saturating_add(lease_ms));
    }

    /// As before [`Self::dispatch`]: nobody has taken it.
    pub fn give_back(&mut self) {
        self.state = TaskState::Queued;
        self.attempts = 0;
        self.dispatched_ms = None;
        self.lease_until_ms = None;
    }

    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let bad = |column| StoreError::Value {
            table: "task",
            column,
        };
        let raw = |column: &'static str| -> Result<Option<Box<RawValue>>, StoreError> {
            let text: Option<String> = row.try_get(column)?;
            text.map(|t| RawValue::from_string(t).map_err(|_| bad(column)))
                .transpose()
        };
        let approval: String = row.try_get("approval")?;
        let state: String = row.try_get("state")?;
        Ok(Self {
            task_id: text(row, "task_id")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            kind: text(row, "kind")?,
            params: raw("params")?.ok_or(bad("params"))?,
            nonce: bytes(row, "nonce")?,
            hash: TaskHash(bytes(row, "hash")?),
            submitted_by: row.try_get("submitted_by")?,
            scheduled: row.try_get::<i64, _>("scheduled")? != 0,
            issued_at: UnixSeconds(uint(row, "issued_at_s")?),
            expires_at: UnixSeconds(uint(row, "expires_at_s")?),
            approval: [Approval::None, Approval::Waiting, Approval::Given]
                .into_iter()
                .find(|a| a.as_str() == approval)
                .ok_or(bad("approval"))?,
            approved_by: row.try_get("approved_by")?,
            state: state.parse().map_err(|()| bad("state"))?,
            attempts: uint(row, "attempts")?,
            submitted_ms: uint(row, "submitted_ms")?,
            dispatched_ms: opt_uint(row, "dispatched_ms")?,
            lease_until_ms: opt_uint(row, "lease_until_ms")?,
            began_ms: opt_uint(row, "began_ms")?,
            ended_ms: opt_uint(row, "ended_ms")?,
            cancelled_by: row.try_get("cancelled_by")?,
            phase: row.try_get("phase")?,
            code: row.try_get("code")?,
            detail: row.try_get("detail")?,
            result: raw("result")?,
            result_key: row.try_get("result_key")?,
        })
    }
}

/// One task; of any cluster if none is named and the id is one cluster's alone.
///
/// # Errors
/// If the store fails.
pub async fn find(
    conn: &mut Conn,
    cluster: Option<&ClusterId>,
    id: &TaskId,
) -> Result<Vec<TaskRow>, StoreError> {
    let rows = db::query("SELECT * FROM task WHERE task_id = ?1 AND (?2 IS NULL OR cluster_id = ?2) LIMIT 2")
        .bind(id.as_str())
        .bind(cluster.map(ClusterId::as_str))
        .fetch_all(conn)
        .await?;
    rows.iter().map(TaskRow::read).collect()
}

/// Tasks, newest first: of a node, in a state, or all.
///
/// # Errors
/// If the store fails, or the cursor is none.
pub async fn history(
    pool: &Pool,
    node: Option<&NodeId>,
    state: Option<TaskState>,
    window: Window<'_>,
) -> Result<Page<TaskRow>, StoreError> {
    let (time, [cluster, task]) = window.newest::<2>()?;
    let mut sql = "SELECT * FROM task WHERE (submitted_ms, cluster_id, task_id) < (?, ?, ?)".to_owned();
    if node.is_some() {
        sql.push_str(" AND node_id = ?");
    }
    if state.is_some() {
        sql.push_str(" AND state = ?");
    }
    sql.push_str(" ORDER BY submitted_ms DESC, cluster_id DESC, task_id DESC LIMIT ?");
    let mut query = db::query(sql).bind(int(time)).bind(cluster).bind(task);
    for wanted in [node.map(NodeId::as_str), state.map(TaskState::as_str)]
        .into_iter()
        .flatten()
    {
        query = query.bind(wanted);
    }
    let rows = query.bind(window.read()).fetch_all(pool).await?;
    let rows = rows.iter().map(TaskRow::read).collect::<Result<_, _>>()?;
    Ok(window.cut(rows, |t: &TaskRow| {
        format!("{}/{}/{}", t.submitted_ms, t.cluster_id, t.task_id)
    }))
}
