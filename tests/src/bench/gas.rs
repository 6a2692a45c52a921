//! Gas of what the contract does, measured in transactions of their own on a real chain.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_chain::msg;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_schema::registry::{ExecuteMsg, InstantiateMsg, ParamsUpdate, ReportGroup};
use serde::{Deserialize, Serialize};

use super::fleet::{Domain, Fleet, Sections};
use super::sender::{Message, Sender};
use crate::raw::now;

/// Reports before the first measured one: the first carries every section, the second settles.
const WARM_UP_ROUNDS: usize = 2;
/// Measured rounds; the dearest counts.
const ROUNDS: usize = 2;
/// Far above what any transaction here needs; nothing is paid for it.
const GAS_LIMIT: u64 = 200_000_000;
/// Registrations in one transaction.
const REGISTRATIONS: usize = 32;

/// A row: n reports in one message of one transaction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Reports.
    pub n: usize,
    /// Clusters they are spread over.
    pub clusters: usize,
    /// Gas of the transaction.
    pub gas_used: u64,
    /// The same for each report, rounded up.
    pub gas_per_report: u64,
    /// Size of the transaction.
    pub tx_bytes: usize,
}

/// A row of another shape.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Variant {
    /// What is different.
    pub name: String,
    /// The figures; `n` counts what the name says.
    #[serde(flatten)]
    pub row: Row,
}

/// Everything measured, as `target/bench/gas.json` has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// One cluster of exactly n nodes, all of them reporting.
    pub batches: Vec<Row>,
    /// Everything else.
    pub variants: Vec<Variant>,
}

/// A contract of our own on a chain, with its sender.
#[derive(Debug)]
pub struct Bench {
    sender: Sender,
    client: RegistryClient,
}

impl Bench {
    /// Stores and instantiates the contract.
    ///
    /// # Errors
    /// If the chain refuses it.
    pub async fn deploy(mut sender: Sender, wasm: Vec<u8>) -> Result<Self> {
        let store = msg::store_code(&sender.address, wasm);
        let (stored, _) = sender.send(vec![store], GAS_LIMIT).await?;
        let data = response_data(&stored.result, 0)?.context("no answer to MsgStoreCode")?;
        let code_id = String::from_utf8(data)?.parse()?;
        let init = InstantiateMsg {
            admin: None,
            params: ParamsUpdate::default(),
        };
        let make = msg::instantiate(&sender.address, None, code_id, "hpc-registry", &init, &[])?;
        let (made, _) = sender.send(vec![make], GAS_LIMIT).await?;
        let data = response_data(&made.result, 0)?.context("no answer to MsgInstantiateContract")?;
        let contract = String::from_utf8(data)?;
        let client = RegistryClient::new(sender.chain.clone(), contract);
        Ok(Self { sender, client })
    }

    /// Gas of one report message over clusters of exactly n nodes in all, `clusters` of them.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn batch(&mut self, name: &str, n: usize, clusters: usize) -> Result<Row> {
        let mut fleets = Vec::new();
        for number in 0..clusters {
            fleets.push(self.fleet(&format!("{name}-{number}"), n / clusters).await?.0);
        }
        self.rounds(&mut fleets, Sections::None, |_| true).await
    }

    /// Variants on one cluster of 64 nodes, a full page, and one of 256.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn variants(&mut self) -> Result<Vec<Variant>> {
        let mut variants = Vec::new();
        let spread = self.batch("spread", 50, 10).await?;
        variants.push(Variant {
            name: "50 reports spread over 10 clusters of 5".into(),
            row: spread,
        });

        let (page, registrations) = self.fleet("page", 64).await?;
        variants.extend(registrations);
        let row = self
            .rounds(&mut [page], Sections::None, |number| number < 50)
            .await?;
        variants.push(Variant {
            name: "50 reports of a full page of 64".into(),
            row,
        });

        let (fleet, _) = self.fleet("details", 256).await?;
        let mut fleets = [fleet];
        let row = self.rounds(&mut fleets, Sections::PerCent(5), |_| true).await?;
        variants.push(Variant {
            name: "256 reports, 5 % with changed details".into(),
            row,
        });
        let (fleet, _) = self.fleet("jobs", 50).await?;
        let row = self
            .rounds(&mut [fleet], Sections::PerCent(100), |_| true)
            .await?;
        variants.push(Variant {
            name: "50 reports, every one with new job ids".into(),
            row,
        });
        Ok(variants)
    }

    /// A new cluster of `count` registered nodes; with it, what the dearest and the mean registration cost.
    async fn fleet(&mut self, cluster: &str, count: usize) -> Result<(Fleet, Vec<Variant>)> {
        let mut fleet = Fleet::new(cluster, count)?;
        let create = ExecuteMsg::CreateCluster {
            cluster_id: fleet.cluster.clone(),
            name: None,
            region: None,
            gateway_endpoint: None,
            operators: Vec::new(),
            task_public_key: None,
            job_ids: hpc_schema::registry::JobIds::None,
        };
        let activate = ExecuteMsg::ActivateCluster {
            cluster_id: fleet.cluster.clone(),
        };
        self.send(&[create, activate]).await?;
        let mut registrations = Vec::new();
        for identity in fleet.identities(&self.sender.address, now()?)? {
            let key = &self.sender.key;
            let contract = self.client.contract();
            let signature =
                key.sign_registration(super::sender::PREFIX, &self.sender.chain_id, contract, &identity)?;
            registrations.push(ExecuteMsg::RegisterNode {
                node_identity: identity,
                provider_signature: STANDARD.encode(signature),
                provider_pubkey: STANDARD.encode(key.public_key()),
                rotation_signature: None,
            });
        }
        let (mut sum, mut worst) = (0, 0);
        for chunk in registrations.chunks(REGISTRATIONS) {
            let row = self.send(chunk).await?;
            sum += row.gas_used;
            worst = worst.max(row.gas_per_report);
        }
        let mean = sum / u64::try_from(count)?;
        let variant = |name: &str, gas: u64| Variant {
            name: format!("{name}, {count} nodes, {REGISTRATIONS} a transaction"),
            row: Row {
                n: 1,
                clusters: 1,
                gas_used: gas,
                gas_per_report: gas,
                tx_bytes: 0,
            },
        };
        self.place(&mut fleet).await?;
        Ok((
            fleet,
            vec![
                variant("registration, mean", mean),
                variant("registration, dearest transaction", worst),
            ],
        ))
    }

    async fn place(&self, fleet: &mut Fleet) -> Result<()> {
        let mut views = Vec::new();
        for ids in fleet.ids().chunks(100) {
            views.extend(
                self.client
                    .relay(fleet.cluster.clone(), ids.to_vec())
                    .await?
                    .value
                    .nodes,
            );
        }
        let domain = Domain {
            chain_id: &self.sender.chain_id,
            contract: self.client.contract(),
        };
        fleet.place(domain, &views)
    }

    /// Warms up, then measures: the dearest of the measured rounds.
    async fn rounds(
        &mut self,
        fleets: &mut [Fleet],
        sections: Sections,
        pick: impl Fn(usize) -> bool + Copy,
    ) -> Result<Row> {
        let mut dearest: Option<Row> = None;
        for round in 0..WARM_UP_ROUNDS + ROUNDS {
            // Every round is of another second, so that every report's time is new as well.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            let time = now()?;
            let mut groups = Vec::new();
            for fleet in &mut *fleets {
                // The first round is of all nodes, so that none stays PENDING beside those that are measured.
                let reports = match round {
                    0 => fleet.batch(time, Sections::All, |_| true)?,
                    _ => fleet.batch(time, sections, pick)?,
                };
                groups.push(ReportGroup {
                    cluster_id: fleet.cluster.clone(),
                    reports,
                });
            }
            let n = groups.iter().map(|g| count(&g.reports)).sum::<Result<usize>>()?;
            let row = self.send(&[ExecuteMsg::SubmitReports { groups }]).await?;
            if round >= WARM_UP_ROUNDS && dearest.as_ref().is_none_or(|d| d.gas_used < row.gas_used) {
                let gas_per_report = row.gas_used.div_ceil(u64::try_from(n)?);
                dearest = Some(Row {
                    n,
                    clusters: fleets.len(),
                    gas_per_report,
                    ..row
                });
            }
        }
        for fleet in &mut *fleets {
            self.check(fleet).await?;
        }
        dearest.context("nothing was measured")
    }

    /// The reports that were counted took effect: the contract has the last sequence of every node that sent one.
    async fn check(&self, fleet: &Fleet) -> Result<()> {
        for ids in fleet.ids().chunks(100) {
            for view in self
                .client
                .relay(fleet.cluster.clone(), ids.to_vec())
                .await?
                .value
                .nodes
            {
                let sent = fleet.sequence(&view.node_id);
                ensure!(
                    Some(view.sequence) == sent,
                    "{}: sent {sent:?}, on chain {}",
                    view.node_id,
                    view.sequence
                );
            }
        }
        Ok(())
    }

    async fn send(&mut self, messages: &[ExecuteMsg]) -> Result<Row> {
        let count = u64::try_from(messages.len())?;
        let messages: Vec<Message> = messages
            .iter()
            .map(|m| self.client.execute(&self.sender.address, m, &[]))
            .collect::<Result<_, _>>()?;
        let n = messages.len();
        let (answer, tx_bytes) = self.sender.send(messages, GAS_LIMIT).await?;
        let gas_used = answer.result.gas_used;
        Ok(Row {
            n,
            clusters: 1,
            gas_used,
            gas_per_report: gas_used.div_ceil(count),
            tx_bytes,
        })
    }
}

fn count(reports: &str) -> Result<usize> {
    let bytes = STANDARD.decode(reports).map_err(|e| anyhow!("{e}"))?;
    let items = hpc_schema::report::batch::decode(&bytes).map_err(|code| anyhow!("{code}"))?;
    Ok(items.count())
}
