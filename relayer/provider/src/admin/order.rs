use hpc_schema::code::Code;
use hpc_schema::command::{CommandType, Parameters};
use hpc_schema::id::{ClusterId, NodeId};
use serde_json::json;
use serde_json::value::RawValue;

use super::act::Act;
use super::error::AdminError;
use super::{Admin, node};
use crate::audit::Actor;
use crate::clock;
use crate::command::{self, CommandRow, NewCommand};
use crate::page::{Page, Window};

/// The farthest deadline of an order.
pub const MAX_DEADLINE_SECONDS: u64 = 7 * 24 * 3600;

/// An order to one node. A drain or resume is not among them: it is the chain's (see [`Admin::drain`]).
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
}

impl Admin {
    /// Puts an order on record; the node is told with its next heartbeat. Gives the order's id.
    ///
    /// # Errors
    /// If there is no such node, or the order cannot be.
    pub async fn send(&self, by: &Actor, order: &Order<'_>) -> Result<String, AdminError> {
        let target = format!("node {}", order.node_id);
        let mut act = Act::begin(&self.store, by, "command.send", target).await?;
        let done = self.send_in(&mut act, by, order).await;
        let id = done.as_ref().ok().cloned();
        let detail = json!({ "command_id": id, "type": order.kind, "parameters": order.parameters });
        act.end(done, detail).await
    }

    async fn send_in(&self, act: &mut Act, by: &Actor, order: &Order<'_>) -> Result<String, AdminError> {
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
        let known = self.resolve(order.node_id, order.cluster_id).await?;
        act.aim(node::target(&known.cluster_id, &known.node_id));
        let now = clock::now();
        let new = NewCommand {
            command_id: hex::encode(clock::random::<16>()?),
            cluster_id: known.cluster_id,
            node_id: known.node_id,
            kind: order.kind,
            parameters: raw.get().to_owned(),
            nonce: clock::random()?,
            issued_by: by.name.clone(),
            issued_at: now,
            deadline: now.plus(order.deadline_seconds),
        };
        if command::submit(act.conn(), &new).await? {
            return Ok(new.command_id);
        }
        let what = "has 16 orders that wait; cancel some (virtengine-provider command cancel)";
        Err(AdminError::field(Code::InvalidState, "node_id", what))
    }

    /// Orders, newest first: of one node or all.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn orders(
        &self,
        cluster: Option<&ClusterId>,
        node: Option<&NodeId>,
        window: Window<'_>,
    ) -> Result<Page<CommandRow>, AdminError> {
        Ok(command::history(self.store.reader(), cluster, node, window).await?)
    }

    /// One order.
    ///
    /// # Errors
    /// If there is none.
    pub async fn order(&self, id: &str) -> Result<CommandRow, AdminError> {
        command::find(self.store.reader(), id).await?.ok_or_else(|| {
            let what = format!("there is no order {id} (virtengine-provider command list)");
            AdminError::missing("command_id", what)
        })
    }

    /// Takes back an order that has not been acknowledged.
    ///
    /// # Errors
    /// If there is none, or it does not wait any more.
    pub async fn cancel(&self, by: &Actor, id: &str) -> Result<(), AdminError> {
        let mut act = Act::begin(&self.store, by, "command.cancel", format!("command {id}")).await?;
        let done = async {
            let order = self.order(id).await?;
            if command::cancel(act.conn(), id).await? {
                return Ok(());
            }
            let what = format!(
                "order {id} is {} already; only what waits can be taken back",
                order.state.as_str()
            );
            Err(AdminError::field(Code::InvalidState, "command_id", what))
        };
        let done = done.await;
        act.end(done, json!({})).await
    }
}
