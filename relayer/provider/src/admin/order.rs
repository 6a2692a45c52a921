use hpc_schema::code::Code;
use hpc_schema::command::{CommandType, Parameters};
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::time::UnixSeconds;
use serde_json::value::RawValue;

use super::error::AdminError;
use super::node::resolve;
use crate::clock;
use crate::command::{self, NewCommand};
use crate::store::{Store, StoreError};

/// The farthest deadline of an order.
pub const MAX_DEADLINE_SECONDS: u64 = 7 * 24 * 3600;

/// An order to one node. A drain or resume is not among them: it is the chain's (see [`super::drain()`]).
#[derive(Debug, Clone)]
pub struct Order<'a> {
    /// The node.
    pub node_id: &'a NodeId,
    /// Its cluster, if several have a node of this id.
    pub cluster_id: Option<&'a ClusterId>,
    /// What is to be done.
    pub kind: CommandType,
    /// JSON object.
    pub parameters: &'a str,
    /// Not to be begun later than so many seconds from now.
    pub deadline_seconds: u64,
    /// Who orders it.
    pub by: &'a str,
}

/// Puts an order on record; the node is told with its next heartbeat. Gives the order's id.
///
/// # Errors
/// If there is no such node, or the order cannot be.
pub async fn send(store: &Store, order: &Order<'_>, now: UnixSeconds) -> Result<String, AdminError> {
    if matches!(order.kind, CommandType::Drain | CommandType::Resume) {
        let what = "drain and resume are recorded on chain; use node drain and node resume";
        return Err(AdminError::field(Code::InvalidField, "type", what));
    }
    if !(1..=MAX_DEADLINE_SECONDS).contains(&order.deadline_seconds) {
        let what = "must be 1 s to 7 days from now";
        return Err(AdminError::field(Code::InvalidField, "deadline", what));
    }
    let raw: &RawValue = serde_json::from_str(order.parameters)
        .map_err(|e| AdminError::field(Code::InvalidField, "parameters", e))?;
    Parameters::parse(order.kind, raw).map_err(AdminError::Refused)?;
    let known = resolve(store, order.node_id, order.cluster_id).await?;
    let new = NewCommand {
        command_id: hex::encode(clock::random::<16>()?),
        cluster_id: known.cluster_id,
        node_id: known.node_id,
        kind: order.kind,
        parameters: raw.get().to_owned(),
        nonce: clock::random()?,
        issued_by: order.by.to_owned(),
        issued_at: now,
        deadline: now.plus(order.deadline_seconds),
    };
    let mut tx = store.begin().await?;
    let taken = command::submit(&mut tx, &new).await?;
    tx.commit().await.map_err(StoreError::from)?;
    if taken {
        return Ok(new.command_id);
    }
    let what = "has 16 orders that wait; cancel some (virtengine-provider command cancel)";
    Err(AdminError::field(Code::RateLimited, "node_id", what))
}
