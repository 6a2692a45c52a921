//! Nodes, alerts, proofs, the audit log.

use hpc_chain::proof::Proof;
use hpc_schema::command::CommandType;
use hpc_schema::id::{ClusterId, NodeId};
use serde::Deserialize;
use serde_json::json;

use super::super::args::Whose;
use super::super::who;
use super::{Desk, all, done, place};
use crate::admin::{AdminError, Drain, NodeFull, NodeRow};
use crate::alert::{self, AlertRow};
use crate::audit::{self, AuditPage};
use crate::clock;
use crate::control::Disabled;
use crate::page::Page;

/// The transaction.
#[derive(Deserialize)]
struct OnChain {
    tx: String,
}

fn of(whose: &Whose) -> [(&'static str, Option<&str>); 1] {
    [("cluster_id", whose.cluster_id.as_ref().map(ClusterId::as_str))]
}

impl Desk {
    /// Every node, or those of one id.
    pub(in crate::cli) async fn nodes(&self, node: Option<&NodeId>) -> anyhow::Result<Vec<NodeRow>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.nodes(None, node, window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                let [after, limit] = place(&window, &limit);
                let query = [("node_id", node.map(NodeId::as_str)), after, limit];
                remote.get(&["nodes"], &query).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn node(&self, whose: &Whose, reports: u32) -> Result<NodeFull, AdminError> {
        match self {
            Self::Here(admin, _) => {
                admin
                    .node(&whose.node_id, whose.cluster_id.as_ref(), reports)
                    .await
            }
            Self::There(remote) => {
                let reports = reports.to_string();
                let [cluster] = of(whose);
                let query = [cluster, ("reports", Some(reports.as_str()))];
                remote.get(&["nodes", whose.node_id.as_str()], &query).await
            }
        }
    }

    pub(in crate::cli) async fn disable(&self, whose: &Whose, reason: &str) -> Result<Disabled, AdminError> {
        let (node, cluster) = (&whose.node_id, whose.cluster_id.as_ref());
        match self {
            Self::Here(admin, _) => admin.disable(&who(), node, cluster, reason).await,
            Self::There(remote) => {
                let body = json!({ "reason": reason });
                remote
                    .post(&["nodes", node.as_str(), "disable"], &of(whose), &body)
                    .await
            }
        }
    }

    pub(in crate::cli) async fn enable(&self, whose: &Whose) -> Result<(), AdminError> {
        let (node, cluster) = (&whose.node_id, whose.cluster_id.as_ref());
        match self {
            Self::Here(admin, _) => admin.enable(&who(), node, cluster).await,
            Self::There(remote) => {
                let path = ["nodes", node.as_str(), "enable"];
                done(remote.post(&path, &of(whose), &json!({})).await)
            }
        }
    }

    /// A drain for so many seconds; gives the transaction's hash.
    pub(in crate::cli) async fn drain(
        &self,
        whose: &Whose,
        reason: Option<String>,
        lasts_seconds: Option<u64>,
    ) -> Result<String, AdminError> {
        match self {
            Self::Here(admin, _) => {
                let drain = Drain {
                    node_id: &whose.node_id,
                    cluster_id: whose.cluster_id.as_ref(),
                    kind: CommandType::Drain,
                    reason,
                    until: lasts_seconds.map(|s| clock::now().plus(s)),
                };
                admin.drain(&who(), drain).await
            }
            Self::There(remote) => {
                let body = json!({ "reason": reason, "lasts_seconds": lasts_seconds });
                let path = ["nodes", whose.node_id.as_str(), "drain"];
                let sent: OnChain = remote.post(&path, &of(whose), &body).await?;
                Ok(sent.tx)
            }
        }
    }

    /// Its end; gives the transaction's hash.
    pub(in crate::cli) async fn resume(&self, whose: &Whose) -> Result<String, AdminError> {
        match self {
            Self::Here(admin, _) => {
                let resume = Drain {
                    node_id: &whose.node_id,
                    cluster_id: whose.cluster_id.as_ref(),
                    kind: CommandType::Resume,
                    reason: None,
                    until: None,
                };
                admin.drain(&who(), resume).await
            }
            Self::There(remote) => {
                let path = ["nodes", whose.node_id.as_str(), "resume"];
                let sent: OnChain = remote.post(&path, &of(whose), &json!({})).await?;
                Ok(sent.tx)
            }
        }
    }

    pub(in crate::cli) async fn prove(
        &self,
        whose: &Whose,
        epoch: Option<u64>,
        sequence: Option<u32>,
    ) -> Result<Proof, AdminError> {
        match self {
            Self::Here(admin, _) => {
                admin
                    .prove(&whose.node_id, whose.cluster_id.as_ref(), epoch, sequence)
                    .await
            }
            Self::There(remote) => {
                let (epoch, sequence) = (epoch.map(|n| n.to_string()), sequence.map(|n| n.to_string()));
                let [cluster] = of(whose);
                let query = [
                    cluster,
                    ("epoch", epoch.as_deref()),
                    ("sequence", sequence.as_deref()),
                ];
                remote
                    .get(&["nodes", whose.node_id.as_str(), "proof"], &query)
                    .await
            }
        }
    }

    pub(in crate::cli) async fn alerts(&self) -> anyhow::Result<Vec<AlertRow>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => Ok(alert::list(admin.store.reader(), window).await?),
            Self::There(remote) => {
                let limit = window.limit().to_string();
                remote.get(&["alerts"], &place(&window, &limit)).await
            }
        })
        .await
    }

    /// Rows of the audit log after the one of this number, oldest first, up to a page.
    pub(in crate::cli) async fn audit(&self, after: u64) -> Result<AuditPage, AdminError> {
        match self {
            Self::Here(admin, _) => Ok(AuditPage::after(admin.store.reader(), after, None).await?),
            Self::There(remote) => {
                let after = after.to_string();
                remote.get(&["audit"], &[("after", Some(&after))]).await
            }
        }
    }

    /// The newest rows of it, oldest first, up to a page.
    pub(in crate::cli) async fn audit_newest(&self, limit: u32) -> Result<Vec<audit::Row>, AdminError> {
        let limit = limit.clamp(1, audit::MAX_PAGE);
        match self {
            Self::Here(admin, _) => Ok(audit::newest(admin.store.reader(), limit).await?),
            Self::There(remote) => {
                let limit = limit.to_string();
                let query = [("newest", Some("true")), ("limit", Some(limit.as_str()))];
                let page: Page<audit::Row> = remote.get(&["audit"], &query).await?;
                Ok(page.items)
            }
        }
    }
}
