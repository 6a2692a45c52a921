//! Nodes that are kept out.

use std::collections::BTreeSet;

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use serde_json::json;

use super::Admin;
use super::act::Act;
use super::error::AdminError;
use super::node::{in_several, target};
use crate::audit::Actor;
use crate::clock;
use crate::control::{self, Disabled};
use crate::enrol;

/// Longest reason in bytes.
const MAX_REASON: usize = 256;

impl Admin {
    /// Refuses the node's traffic from now on, and what waits to be registered in its name; the node is told the reason.
    ///
    /// # Errors
    /// If there is no such node, or the reason is too long.
    pub async fn disable(
        &self,
        by: &Actor,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
        reason: &str,
    ) -> Result<Disabled, AdminError> {
        let mut act = Act::begin(&self.store, by, "node.disable", format!("node {node_id}")).await?;
        let done = async {
            if reason.trim().is_empty() || reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
                let what = format!("must be 1 to {MAX_REASON} bytes of one line");
                return Err(AdminError::field(Code::InvalidField, "reason", what));
            }
            let known = self.resolve(node_id, cluster_id).await?;
            act.aim(target(&known.cluster_id, &known.node_id));
            let disabled = Disabled {
                cluster_id: known.cluster_id,
                node_id: known.node_id,
                reason: reason.to_owned(),
                by: by.name.clone(),
                disabled_at: clock::now(),
            };
            control::disable(act.conn(), &disabled).await?;
            let (cluster, node) = (&disabled.cluster_id, &disabled.node_id);
            enrol::end_disabled(act.conn(), cluster, node, clock::now_ms()).await?;
            Ok(disabled)
        };
        let done = done.await;
        act.end(done, json!({ "reason": reason })).await
    }

    /// Takes the node's traffic again.
    ///
    /// # Errors
    /// If there is no such node, or it is not disabled.
    pub async fn enable(
        &self,
        by: &Actor,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
    ) -> Result<(), AdminError> {
        let mut act = Act::begin(&self.store, by, "node.enable", format!("node {node_id}")).await?;
        let done = async {
            let cluster = self.cluster_to_enable(&mut act, node_id, cluster_id).await?;
            act.aim(target(&cluster, node_id));
            // What came in the moment of the decision is not let in by this one.
            enrol::end_disabled(act.conn(), &cluster, node_id, clock::now_ms()).await?;
            if control::enable(act.conn(), &cluster, node_id).await? {
                return Ok(());
            }
            let what = "the node is not disabled";
            Err(AdminError::field(Code::InvalidState, "node_id", what))
        };
        let done = done.await;
        act.end(done, json!({})).await
    }

    /// The cluster of the node that is meant. The chain may have pruned it since it was disabled, or its cluster be closed: it
    /// is to register again, and then must be let in.
    async fn cluster_to_enable(
        &self,
        act: &mut Act,
        node_id: &NodeId,
        cluster_id: Option<&ClusterId>,
    ) -> Result<ClusterId, AdminError> {
        let disabled = control::disabled_in(act.conn(), node_id).await?;
        let mut clusters: BTreeSet<ClusterId> = disabled
            .into_iter()
            .filter(|c| cluster_id.is_none_or(|wanted| wanted == c))
            .collect();
        match self.resolve(node_id, cluster_id).await {
            Ok(known) => {
                clusters.insert(known.cluster_id);
            }
            Err(AdminError::Missing(_)) if !clusters.is_empty() => {}
            Err(e) => return Err(e),
        }
        if clusters.len() > 1 {
            return Err(in_several(clusters.iter()));
        }
        // Never empty here: either has one.
        let missing = || AdminError::missing("node_id", format!("{node_id} is not on record"));
        clusters.pop_first().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::control::disabled;
    use crate::db;
    use crate::registry::scene;

    const NODE: &str = "node-0001";

    async fn desk(dir: &std::path::Path) -> Admin {
        Admin::alone(dir, Config::default()).await
    }

    fn cluster(n: u8) -> ClusterId {
        format!("hpc-cluster-{n}").parse().unwrap()
    }

    /// The node is on record in this cluster.
    async fn on_record(desk: &Admin, n: u8) {
        let mut tx = desk.store.begin().await.unwrap();
        scene::on_record(&mut tx, cluster(n).as_str(), NODE).await;
        tx.commit().await.unwrap();
    }

    /// The node is disabled in the first cluster, and no longer on the chain.
    async fn disabled_and_pruned(dir: &std::path::Path, by: &Actor, node: &NodeId) -> Admin {
        let desk = desk(dir).await;
        on_record(&desk, 1).await;
        desk.disable(by, node, None, "goes to its maker").await.unwrap();
        let mut tx = desk.store.begin().await.unwrap();
        db::query("DELETE FROM node").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        desk
    }

    async fn left(desk: &Admin) -> Vec<ClusterId> {
        let all = disabled(desk.store.reader()).await.unwrap();
        all.into_iter().map(|d| d.cluster_id).collect()
    }

    fn code<T: std::fmt::Debug>(done: Result<T, AdminError>) -> Code {
        match done.unwrap_err() {
            AdminError::Refused(why) | AdminError::Missing(why) => why.code,
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn a_node_that_was_disabled_and_that_the_chain_has_pruned_since_is_let_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let (by, node) = (Actor::daemon(), NODE.parse().unwrap());
        let desk = disabled_and_pruned(dir.path(), &by, &node).await;
        let elsewhere = desk.enable(&by, &node, Some(&cluster(2))).await;
        assert_eq!(code(elsewhere), Code::UnknownNode);
        assert_eq!(left(&desk).await, [cluster(1)]);
        desk.enable(&by, &node, None).await.unwrap();
        assert!(left(&desk).await.is_empty());
        assert_eq!(code(desk.enable(&by, &node, None).await), Code::UnknownNode);
    }

    #[tokio::test]
    async fn of_a_node_that_is_gone_and_one_on_record_elsewhere_the_cluster_must_be_named() {
        let dir = tempfile::tempdir().unwrap();
        let (by, node) = (Actor::daemon(), NODE.parse().unwrap());
        let desk = disabled_and_pruned(dir.path(), &by, &node).await;
        on_record(&desk, 2).await;
        assert_eq!(code(desk.enable(&by, &node, None).await), Code::AmbiguousNode);
        let here = desk.enable(&by, &node, Some(&cluster(2))).await;
        assert_eq!(code(here), Code::InvalidState);
        desk.enable(&by, &node, Some(&cluster(1))).await.unwrap();
        assert!(left(&desk).await.is_empty());
    }

    #[tokio::test]
    async fn what_came_to_be_registered_in_the_moment_of_a_decision_does_not_go_on_when_the_node_is_let_in() {
        let dir = tempfile::tempdir().unwrap();
        let (desk, by) = (desk(dir.path()).await, Actor::daemon());
        let node: NodeId = NODE.parse().unwrap();
        on_record(&desk, 1).await;
        desk.disable(&by, &node, None, "its key was stolen")
            .await
            .unwrap();
        // A gateway that did not know yet.
        let mut tx = desk.store.begin().await.unwrap();
        for statement in [
            "INSERT INTO token (jti, cluster_id, node_id, public_key, created_at_s, expires_at_s)
             VALUES ('t', ?, ?, ?, 1, 2)",
            "INSERT INTO registration (jti, cluster_id, node_id, public_key, csr, state, created_at, updated_at)
             VALUES ('t', ?1, ?2, ?3, ?3, 'queued', 1, 1)",
        ] {
            db::query(statement)
                .bind(cluster(1).as_str())
                .bind(NODE)
                .bind([1u8].as_slice())
                .execute(&mut *tx)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        desk.enable(&by, &node, None).await.unwrap();
        let row = db::query("SELECT state FROM registration");
        let row = row.fetch_one(desk.store.reader()).await.unwrap();
        assert_eq!(row.get::<String, _>("state"), "refused");
    }
}
