//! The dearest message of each kind: every text as long as it may be, in a full page.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_zebra::SigningKey;
use hpc_chain::gas::Coin;
use hpc_chain::msg;
use hpc_schema::id::ClusterId;
use hpc_schema::registration::task_key_rotation_message;
use hpc_schema::registry::{
    self, ClusterCreation, ExecuteMsg, JobIds, MigrateMsg, ParamsUpdate, ReportGroup, SubmitAnswer,
};
use hpc_schema::time::UnixSeconds;

use super::{Bench, answer, store};
use crate::bench::figures::Figure;
use crate::bench::fleet::{Fleet, public};
use crate::bench::reports::{Sections, Signed, batch};
use crate::raw::now;

/// Job ids of 64 characters in each of 1,024 sections, so that the transaction still fits a default RPC body.
const JOBS: usize = 5;
const DAYS_30: u64 = 30 * 86_400;
const DEPOSIT: &str = "1000stake";

/// Kinds of messages, as JSON names them, that `figures` lacks.
///
/// # Errors
/// If the schema of the messages is none.
pub(super) fn missing(figures: &[Figure]) -> Result<Vec<String>> {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../schema/json/registry-execute.json"))?;
    let kinds = schema
        .pointer("/oneOf")
        .and_then(|v| v.as_array())
        .context("no oneOf")?;
    let names = kinds
        .iter()
        .filter_map(|kind| kind.pointer("/required/0")?.as_str());
    let measured = |name: &&str| {
        !figures
            .iter()
            .any(|f| f.name.split([' ', ',']).next() == Some(*name))
    };
    Ok(names.filter(measured).map(str::to_owned).collect())
}

impl Bench {
    /// One of each kind, on a registry of its own; `known` are figures of other messages.
    ///
    /// # Errors
    /// If a transaction fails, or a kind of message was measured nowhere.
    pub async fn messages(&mut self, wasm: &[u8], known: &[Figure]) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        let (code, stored) = store(&mut self.sender, wasm).await?;
        figures.push(Figure::new("the code is stored (gzip)", 1, stored));
        let made = self.instantiate(code).await?;
        figures.push(Figure::new("the contract is instantiated", 1, made));
        let contract = self.client.contract();
        let migrate = msg::migrate(&self.sender.address, contract, code, &MigrateMsg {})?;
        let migrated = self.sender.send(vec![migrate]).await?.spent;
        figures.push(Figure::new(
            "the contract is migrated, nothing to convert",
            1,
            migrated,
        ));

        let mut fleet = Fleet::new(&"c".repeat(64), 64)?;
        for (name, message) in self.cluster_messages(&fleet.cluster)? {
            let funds: &[Coin] = match message {
                ExecuteMsg::CreateCluster { .. } => &[DEPOSIT.parse()?],
                _ => &[],
            };
            let spent = self
                .send_with(&[message], funds, Vec::new())
                .await
                .with_context(|| name.to_owned())?
                .spent;
            figures.push(Figure::new(name, 1, spent));
        }
        figures.push(self.close_cluster().await?);
        for (name, message) in self.node_messages(&mut fleet).await? {
            let spent = self.send(&[message]).await.with_context(|| name.to_owned())?;
            figures.push(Figure::new(name, 1, spent));
        }
        let all = [known, figures.as_slice()].concat();
        let missing = missing(&all)?;
        ensure!(missing.is_empty(), "not measured: {}", missing.join(", "));
        Ok(figures)
    }

    /// Everything about the contract and a cluster.
    fn cluster_messages(&self, id: &ClusterId) -> Result<Vec<(&'static str, ExecuteMsg)>> {
        let me = self.sender.address.clone();
        let domain = self.domain();
        let operators = (0..16u8)
            .map(|n| cosmrs::AccountId::new(super::super::sender::PREFIX, &[n; 20]).map(|a| a.to_string()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| anyhow::anyhow!("{e}"))?;
        let endpoint = format!("https://{}", "g".repeat(248));
        let (old, new) = (SigningKey::from([1; 32]), SigningKey::from([2; 32]));
        let rotation = task_key_rotation_message(domain.chain_id, domain.contract, id, &public(&new)?);
        let params = ParamsUpdate {
            heartbeat_interval: Some(119),
            heartbeat_timeout: Some(599),
            offline_threshold: Some(1_799),
            deregistration_delay: Some(86_399),
            retention: Some(31_535_999),
            batch_limit: Some(1_024),
            cluster_creation: Some(ClusterCreation::Open),
            cluster_deposit: Some(registry::Coin {
                denom: "stake".into(),
                amount: "1000".into(),
            }),
        };
        Ok(vec![
            ("update_params, all of them", ExecuteMsg::UpdateParams { params }),
            (
                "propose_admin",
                ExecuteMsg::ProposeAdmin {
                    admin: Some(me.clone()),
                },
            ),
            ("accept_admin", ExecuteMsg::AcceptAdmin {}),
            (
                "pause_registrations",
                ExecuteMsg::PauseRegistrations { paused: false },
            ),
            (
                "create_cluster, longest texts, 16 operators, a deposit",
                ExecuteMsg::CreateCluster {
                    cluster_id: id.clone(),
                    name: Some("n".repeat(64)),
                    region: Some("r".repeat(32)),
                    gateway_endpoint: Some(endpoint.clone()),
                    operators: operators.clone(),
                    task_public_key: Some(public(&old)?),
                    job_ids: JobIds::Hashed,
                },
            ),
            (
                "update_cluster, longest texts, 16 operators",
                ExecuteMsg::UpdateCluster {
                    cluster_id: id.clone(),
                    name: Some("m".repeat(64)),
                    region: Some("s".repeat(32)),
                    gateway_endpoint: Some(endpoint),
                    operators: Some(operators),
                    job_ids: Some(JobIds::Plain),
                },
            ),
            (
                "set_task_key, rotated",
                ExecuteMsg::SetTaskKey {
                    cluster_id: id.clone(),
                    task_public_key: public(&new)?,
                    rotation_signature: Some(STANDARD.encode(<[u8; 64]>::from(old.sign(&rotation)))),
                },
            ),
            (
                "propose_cluster_owner",
                ExecuteMsg::ProposeClusterOwner {
                    cluster_id: id.clone(),
                    owner: Some(me),
                },
            ),
            (
                "accept_cluster_owner",
                ExecuteMsg::AcceptClusterOwner {
                    cluster_id: id.clone(),
                },
            ),
            (
                "activate_cluster",
                ExecuteMsg::ActivateCluster {
                    cluster_id: id.clone(),
                },
            ),
            (
                "anchor",
                ExecuteMsg::Anchor {
                    cluster_id: id.clone(),
                    kind: "k".repeat(32),
                    digest: "d".repeat(64),
                },
            ),
        ])
    }

    /// The end of a cluster that never had a node.
    async fn close_cluster(&mut self) -> Result<Figure> {
        let id: ClusterId = "d".repeat(64).parse()?;
        let messages = self
            .cluster_messages(&id)?
            .into_iter()
            .map(|(_, message)| message);
        for create in messages.filter(|m| matches!(m, ExecuteMsg::CreateCluster { .. })) {
            self.send_with(&[create], &[DEPOSIT.parse()?], Vec::new()).await?;
        }
        let close = ExecuteMsg::CloseCluster { cluster_id: id };
        let spent = self.send(&[close]).await?;
        Ok(Figure::new("close_cluster, the deposit returned", 1, spent))
    }

    /// Everything about the last node of a full page that has reported, and the end of its cluster.
    async fn node_messages(&mut self, fleet: &mut Fleet) -> Result<Vec<(&'static str, ExecuteMsg)>> {
        self.register(fleet).await?;
        let now = now()?;
        let group = ReportGroup {
            cluster_id: fleet.cluster.clone(),
            reports: batch(&fleet.reports(now, Sections::All, |_| true)?)?,
        };
        self.send(&[ExecuteMsg::SubmitReports { groups: vec![group] }])
            .await?;
        let node_id = fleet.ids().pop().context("a fleet without nodes")?;
        let cluster_id = None;
        Ok(vec![
            (
                "drain_node, longest reason",
                ExecuteMsg::DrainNode {
                    cluster_id: cluster_id.clone(),
                    node_id: node_id.clone(),
                    reason: Some("r".repeat(128)),
                    // An hour of room for the chain's clock.
                    until: Some(UnixSeconds(now + DAYS_30 - 3_600)),
                },
            ),
            (
                "resume_node",
                ExecuteMsg::ResumeNode {
                    cluster_id: cluster_id.clone(),
                    node_id: node_id.clone(),
                },
            ),
            (
                "register_node, key and machine of a live node replaced, longest texts",
                fleet.rotation(63, self.domain(), &self.sender.key, now)?,
            ),
            (
                "deregister_node",
                ExecuteMsg::DeregisterNode { cluster_id, node_id },
            ),
            (
                "deactivate_cluster",
                ExecuteMsg::DeactivateCluster {
                    cluster_id: fleet.cluster.clone(),
                },
            ),
        ])
    }

    /// The dearest report message: every node comes back from OFFLINE, each with a section as long as fits.
    ///
    /// # Errors
    /// If the transaction fails or a report does not count.
    pub async fn dearest_reports(&mut self, fleet: &mut Fleet) -> Result<Figure> {
        let reports = fleet.reports(now()?, Sections::Jobs(JOBS), |_| true)?;
        let group = ReportGroup {
            cluster_id: fleet.cluster.clone(),
            reports: batch(&reports)?,
        };
        let message = ExecuteMsg::SubmitReports { groups: vec![group] };
        let done = self.send_with(&[message], &[], Vec::new()).await?;
        let told: SubmitAnswer = answer(&done)?;
        ensure!(
            usize::try_from(told.accepted)? == reports.len(),
            "{} of {} reports count",
            told.accepted,
            reports.len()
        );
        let section = reports.iter().filter_map(Signed::section_len).max().unwrap_or(0);
        let name = format!("submit_reports, 1,024 nodes return from OFFLINE, sections of {section} bytes");
        Ok(Figure::new(name, u64::from(told.accepted), done.spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_nobody_measured_is_named() {
        let all = missing(&[]).unwrap();
        assert!(all.contains(&"register_node".to_owned()) && all.len() >= 19);
    }
}
