use hpc_schema::id::{ClusterId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::act::Act;
use super::error::AdminError;
use super::{Admin, node};
use crate::audit::Actor;
use crate::clock;
use crate::enrol;
use crate::page::{Page, Window};

/// A registration that waits for approval.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The node's cluster.
    pub cluster_id: ClusterId,
    /// The node.
    pub node_id: NodeId,
    /// Its key, base64: compare it with the node's agent.pub.
    pub public_key: String,
    /// The host name that it says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

impl Admin {
    /// Registrations that wait for approval, oldest first.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn waiting(&self, window: Window<'_>) -> Result<Page<Waiting>, AdminError> {
        let held = enrol::held(self.store.reader(), None, window).await?;
        Ok(held.map(|r| Waiting {
            cluster_id: r.cluster_id,
            node_id: r.node_id,
            public_key: r.public_key.to_base64(),
            hostname: r.hostname,
        }))
    }

    /// Lets a node that waits for approval register.
    ///
    /// # Errors
    /// If none waits, or several clusters have one of this id that does.
    pub async fn approve(
        &self,
        by: &Actor,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
    ) -> Result<(), AdminError> {
        let target = format!("node {node_id}");
        let mut act = Act::begin(&self.store, by, "registration.approve", target).await?;
        let done = async {
            let all = Window::default();
            let mut waiting = enrol::held(self.store.reader(), Some(node_id), all).await?.items;
            waiting.retain(|r| cluster_id.is_none_or(|c| *c == r.cluster_id));
            let [one] = waiting.as_slice() else {
                let what = format!(
                    "{} registrations of {node_id} wait (virtengine-provider node-token waiting)",
                    waiting.len()
                );
                return Err(AdminError::missing("node_id", what));
            };
            act.aim(node::target(&one.cluster_id, &one.node_id));
            enrol::approve(act.conn(), &one.cluster_id, &one.node_id, clock::now_ms()).await?;
            Ok(one.public_key.to_base64())
        };
        let done = done.await;
        let key = done.as_ref().ok().cloned();
        act.end(done, json!({ "public_key": key })).await.map(drop)
    }
}
