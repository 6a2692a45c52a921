use std::collections::BTreeSet;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::AgentKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::act::Act;
use super::error::AdminError;
use super::{Admin, node};
use crate::audit::Actor;
use crate::clock;
use crate::enrol::{self, Applicant, Registration, TokenState};
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
    /// Registrations that wait for approval and may still be given it, oldest first.
    ///
    /// # Errors
    /// If the store fails, or the cursor is none.
    pub async fn waiting(&self, window: Window<'_>) -> Result<Page<Waiting>, AdminError> {
        let held = enrol::held(self.store.reader(), clock::now(), window).await?;
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
    /// If none waits, several do, or its token has expired or was taken back meanwhile.
    pub async fn approve(&self, by: &Actor, whom: Applicant<'_>) -> Result<(), AdminError> {
        let target = format!("node {}", whom.node_id);
        let mut act = Act::begin(&self.store, by, "registration.approve", target).await?;
        let done = async {
            // Of several with one key the newest: the agent asks with the token that it was given last.
            let (one, older) = waits(&mut act, whom).await?;
            enrol::approve(act.conn(), one.id, clock::now_ms()).await?;
            // Else they would wait on, for an approval that they need no more.
            for registration in &older {
                enrol::revoke(act.conn(), &registration.jti, clock::now()).await?;
            }
            Ok::<_, AdminError>(one.public_key.to_base64())
        };
        let done = done.await;
        let key = done.as_ref().ok().cloned();
        act.end(done, json!({ "public_key": key })).await.map(drop)
    }

    /// Refuses a node that waits for approval: with this key it needs a token of its own. Gives the key.
    ///
    /// # Errors
    /// As [`Self::approve`].
    pub async fn reject(&self, by: &Actor, whom: Applicant<'_>) -> Result<String, AdminError> {
        let target = format!("node {}", whom.node_id);
        let mut act = Act::begin(&self.store, by, "registration.reject", target).await?;
        let done = async {
            let (one, older) = waits(&mut act, whom).await?;
            for registration in older.iter().chain([&one]) {
                enrol::reject(act.conn(), registration, clock::now_ms()).await?;
            }
            Ok::<_, AdminError>(one.public_key.to_base64())
        };
        let done = done.await;
        let key = done.as_ref().ok().cloned();
        act.end(done, json!({ "public_key": key })).await
    }
}

/// The newest registration of the one node and key that are meant and wait, and the older ones of the same.
async fn waits(act: &mut Act, whom: Applicant<'_>) -> Result<(Registration, Vec<Registration>), AdminError> {
    let mut wait = Vec::new();
    let mut late = None;
    for (registration, state) in enrol::held_of(act.conn(), whom, clock::now()).await? {
        match state {
            TokenState::Open => wait.push(registration),
            _ => late = late.or(Some((registration, state))),
        }
    }
    let Some(one) = wait.pop() else {
        return Err(none_waits(whom, late));
    };
    let clusters: BTreeSet<_> = wait.iter().chain([&one]).map(|r| &r.cluster_id).collect();
    if clusters.len() > 1 {
        let clusters: Vec<_> = clusters.into_iter().map(ClusterId::as_str).collect();
        let what = format!("waits in several clusters: {}", clusters.join(", "));
        return Err(AdminError::field(Code::AmbiguousNode, "node_id", what));
    }
    act.aim(node::target(&one.cluster_id, &one.node_id));
    let keys: BTreeSet<_> = wait.iter().chain([&one]).map(|r| r.public_key).collect();
    if keys.len() > 1 {
        let keys: Vec<_> = keys.iter().map(AgentKey::to_base64).collect();
        let what = format!(
            "several keys wait under this id (virtengine-provider node-token waiting): {}; name the one that stands in \
             the node's agent.pub with --public-key, and refuse others with virtengine-provider node-token reject",
            keys.join(", ")
        );
        return Err(AdminError::field(Code::InvalidField, "public_key", what));
    }
    Ok((one, wait))
}

/// Why there is nobody to decide on; `late`: one who did wait, and what came over its token.
fn none_waits(whom: Applicant<'_>, late: Option<(Registration, TokenState)>) -> AdminError {
    let Some((registration, state)) = late else {
        let what = format!(
            "no registration of {} waits (virtengine-provider node-token waiting)",
            whom.node_id
        );
        return AdminError::missing("node_id", what);
    };
    let (code, why) = match state {
        TokenState::Expired => (Code::TokenExpired, "its token has expired"),
        _ => (
            Code::TokenInvalid,
            registration
                .detail
                .as_deref()
                .unwrap_or("its token does not count any more"),
        ),
    };
    let what = format!(
        "no registration of {} waits; with the key {}: {why}",
        whom.node_id,
        registration.public_key.to_base64()
    );
    AdminError::field(code, "node_id", what)
}
