use hpc_schema::command::{AcknowledgementStatus, CommandType};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::db::Row;
use crate::store::{StoreError, bytes, opt_uint, text, uint};

/// Who ordered what follows from the chain.
pub(super) const BY_CHAIN: &str = "chain";

/// How an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandState {
    /// Not acknowledged.
    Pending,
    /// The node has taken it and is at it.
    Accepted,
    /// Carried out.
    Done,
    /// Begun and not carried out.
    Failed,
    /// The node refuses it.
    Refused,
    /// Its deadline passed without an acknowledgement.
    Expired,
    /// Taken back, or replaced by a contrary order.
    Cancelled,
}

impl CommandState {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Accepted,
        Self::Done,
        Self::Failed,
        Self::Refused,
        Self::Expired,
        Self::Cancelled,
    ];

    /// The word in the store and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<AcknowledgementStatus> for CommandState {
    fn from(status: AcknowledgementStatus) -> Self {
        match status {
            AcknowledgementStatus::Accepted => Self::Accepted,
            AcknowledgementStatus::Done => Self::Done,
            AcknowledgementStatus::Failed => Self::Failed,
            AcknowledgementStatus::Refused => Self::Refused,
        }
    }
}

/// A new order.
#[derive(Debug, Clone)]
pub struct NewCommand {
    /// Unique.
    pub command_id: String,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// What is to be done.
    pub kind: CommandType,
    /// JSON object, checked.
    pub parameters: String,
    /// Random.
    pub nonce: [u8; 16],
    /// Who ordered it.
    pub issued_by: String,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub deadline: UnixSeconds,
}

/// An order on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandRow {
    /// Unique.
    pub command_id: String,
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Node.
    pub node_id: NodeId,
    /// What is to be done.
    #[serde(rename = "type")]
    pub kind: CommandType,
    /// JSON object.
    pub parameters: String,
    #[serde(skip)]
    pub(super) nonce: [u8; 16],
    /// Who ordered it: a name, or `chain`.
    pub issued_by: String,
    /// When.
    pub issued_at: UnixSeconds,
    /// Not to be begun afterwards.
    pub deadline: UnixSeconds,
    /// How it stands.
    pub state: CommandState,
    /// When the node was first told.
    pub told_at: Option<UnixSeconds>,
    /// When it last acknowledged.
    pub acknowledged_at: Option<UnixSeconds>,
    /// Code of a refusal or failure.
    pub code: Option<String>,
    /// The node's words.
    pub detail: Option<String>,
    /// All that a diagnostic has found: a JSON object as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

impl CommandRow {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let bad = |column| StoreError::Value {
            table: "command",
            column,
        };
        let kind: String = row.try_get("kind")?;
        let state: String = row.try_get("state")?;
        Ok(Self {
            command_id: row.try_get("command_id")?,
            cluster_id: text(row, "cluster_id")?,
            node_id: text(row, "node_id")?,
            kind: kind.parse().map_err(|_| bad("kind"))?,
            parameters: row.try_get("parameters")?,
            nonce: bytes(row, "nonce")?,
            issued_by: row.try_get("issued_by")?,
            issued_at: UnixSeconds(uint(row, "issued_at_s")?),
            deadline: UnixSeconds(uint(row, "deadline_s")?),
            state: CommandState::ALL
                .into_iter()
                .find(|s| s.as_str() == state)
                .ok_or(bad("state"))?,
            told_at: opt_uint(row, "told_at_s")?.map(UnixSeconds),
            acknowledged_at: opt_uint(row, "acknowledged_at_s")?.map(UnixSeconds),
            code: row.try_get("code")?,
            detail: row.try_get("detail")?,
            report: row.try_get("report")?,
        })
    }
}
