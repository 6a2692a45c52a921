//! A new task key for a cluster: the old one's word for it, on chain and for the nodes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::key::AgentKey;
use hpc_schema::registration::task_key_rotation_message;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::task::KeyRotation;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use crate::audit::Actor;
use crate::daemon::client;
use crate::registry::TaskKeys;
use crate::store::StoreError;
use crate::{clock, control, fault, task};

/// A rotation that is done.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Rotated {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The former key.
    pub old_key: AgentKey,
    /// The key that signs from here on.
    pub new_key: AgentKey,
    /// The transaction; none if the chain had the key already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx: Option<String>,
    /// A rotation that had been broken off was ended, and none begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
}

impl Admin {
    /// Gives a cluster another task key. Broken off anywhere, it is gone on with by the next call, which begins no other: the
    /// new key is drawn first, then it stands on chain, then it is on record here, which is when the gateway signs with it
    /// and tells nodes; last it gets the former one's file.
    ///
    /// # Errors
    /// If the cluster has no key, the chain refuses (only the owner may; what to send is said), or a file fails.
    pub async fn rotate_task_key(&self, by: &Actor, cluster: &ClusterId) -> Result<Rotated, AdminError> {
        let action = ("task_key.rotate", format!("task key of {cluster}"));
        let rotated = self.rotate(by, cluster).await;
        if let Err(e) = &rotated {
            let (result, detail) = e.recorded();
            Act::note(&self.store, by, action, result, detail).await?;
        }
        control::nudge(&self.home);
        rotated
    }

    async fn rotate(&self, by: &Actor, cluster: &ClusterId) -> Result<Rotated, AdminError> {
        let home = |e: crate::identity::SeedError| AdminError::Home(e.to_string());
        let keys = TaskKeys::new(self.home.clone());
        let newest = self.newest_rotation(cluster).await?;
        if let Some(step) = &newest
            && keys.waits(cluster, &step.new_key).map_err(home)?
        {
            // It was on record, and with that done for chain, gateway and nodes: another key was not asked for. Noted first:
            // broken off once more, it is found here again.
            let done = self.resumed(by, cluster, step.clone()).await?;
            fault::point("task_key.resumed");
            keys.promote(cluster, &step.new_key).map_err(home)?;
            return Ok(done);
        }
        let newest = newest.map(|step| step.new_key);
        let Some(old) = keys.counts(cluster, newest.as_ref()).map_err(home)? else {
            let what = "has no task key here that could be replaced (virtengine-provider keys task)";
            return Err(AdminError::field(Code::InvalidState, "cluster_id", what));
        };
        // First: of what is refused no key stays.
        let there = self.key_on_chain(cluster).await?;
        let drawn = keys.drawn(cluster).map_err(home)?;
        let known = |key: &AgentKey| key == old.public() || drawn.as_ref().is_some_and(|d| key == d.public());
        if let Some(there) = there.filter(|key| !known(key)) {
            let what = format!(
                "the chain has the task key {there}, which is neither the one that this gateway signs with, {}, nor its successor; \
                 restore the key's file from where it was rotated",
                old.public()
            );
            return Err(AdminError::field(Code::InvalidState, "cluster_id", what));
        }
        let new = match drawn {
            Some(drawn) => drawn,
            None => keys.next(cluster).map_err(home)?,
        };
        fault::point("task_key.drawn");
        let tx = self.on_chain(cluster, &old, new.public(), there.as_ref()).await?;
        fault::point("task_key.on_chain");
        let Some((chain_id, contract)) = self.store.bound().await? else {
            let text = "the store belongs to no contract; start the daemon once";
            return Err(AdminError::field(Code::InvalidState, "cluster_id", text));
        };
        let step = task::rotation((&chain_id, &contract), cluster, &old, new.public());
        let mut act = Act::begin(
            &self.store,
            by,
            "task_key.rotate",
            format!("task key of {cluster}"),
        )
        .await?;
        // Another call may have been faster; from here on none is.
        let now = task::rotations(act.conn(), cluster)
            .await?
            .last()
            .map(|s| s.new_key);
        let recorded = if now == Some(step.new_key) {
            Ok(())
        } else if now != newest {
            let what = "was given another task key meanwhile; run this again";
            Err(AdminError::field(Code::InvalidState, "cluster_id", what))
        } else {
            task::record_rotation(act.conn(), cluster, &step, clock::now_ms())
                .await
                .map_err(AdminError::from)
        };
        let detail = json!({ "old_key": step.old_key, "new_key": step.new_key, "tx": tx });
        act.end(recorded, detail).await?;
        fault::point("task_key.recorded");
        keys.promote(cluster, new.public()).map_err(home)?;
        Ok(Rotated {
            cluster_id: cluster.clone(),
            old_key: step.old_key,
            new_key: step.new_key,
            tx,
            resumed: false,
        })
    }

    /// A rotation that was broken off after its record has its end.
    async fn resumed(
        &self,
        by: &Actor,
        cluster: &ClusterId,
        step: KeyRotation,
    ) -> Result<Rotated, AdminError> {
        let action = ("task_key.rotate", format!("task key of {cluster}"));
        let detail = json!({ "old_key": step.old_key, "new_key": step.new_key, "resumed": true });
        Act::note(&self.store, by, action, "done", detail).await?;
        Ok(Rotated {
            cluster_id: cluster.clone(),
            old_key: step.old_key,
            new_key: step.new_key,
            tx: None,
            resumed: true,
        })
    }

    async fn newest_rotation(&self, cluster: &ClusterId) -> Result<Option<KeyRotation>, AdminError> {
        let mut conn = self.store.reader().acquire().await.map_err(StoreError::from)?;
        Ok(task::rotations(&mut conn, cluster).await?.pop())
    }

    /// The cluster's task key as the chain has it.
    async fn key_on_chain(&self, cluster: &ClusterId) -> Result<Option<AgentKey>, AdminError> {
        let chain = |e: &dyn std::fmt::Display| AdminError::Chain(e.to_string());
        let client = client(&self.config).map_err(|e| chain(&e))?;
        let asked = client.cluster(cluster.clone()).await.map_err(|e| chain(&e))?;
        Ok(asked.value.cluster.task_public_key)
    }

    /// Puts the new key on chain, if it does not stand `there`.
    async fn on_chain(
        &self,
        cluster: &ClusterId,
        old: &crate::identity::Seed,
        new: &AgentKey,
        there: Option<&AgentKey>,
    ) -> Result<Option<String>, AdminError> {
        if there == Some(new) {
            return Ok(None);
        }
        let config = &self.config.chain;
        let message = task_key_rotation_message(&config.id, &config.contract, cluster, new);
        let signature = STANDARD.encode(old.sign(&message));
        let sends = ExecuteMsg::SetTaskKey {
            cluster_id: cluster.clone(),
            task_public_key: *new,
            rotation_signature: there.is_some().then(|| signature.clone()),
        };
        self.operator_sends(&[sends]).await.map(Some).map_err(|e| {
            if let AdminError::Unknown { what, tx, last_block } = e {
                return AdminError::Unknown {
                    what: format!("{what}; then run this again, which goes on with what the chain has"),
                    tx,
                    last_block,
                };
            }
            let what = format!(
                "{e}; the cluster's owner may send it: virtengine tx hpc set-task-key {cluster} {new} --rotation-signature {signature}; \
                 then run this again"
            );
            match e {
                AdminError::Home(_) => AdminError::Home(what),
                _ => AdminError::Chain(what),
            }
        })
    }
}
