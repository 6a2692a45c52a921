//! The same signed reports on a contract with the usual layouts.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_bench_naive::msg::{ExecuteMsg, InstantiateMsg, Layout, QueryMsg};
use hpc_chain::msg;

use super::batches::{ROUNDS, WARM_UP_ROUNDS, next_second};
use super::{Bench, instantiate, store};
use crate::bench::figures::{Row, Spent, Variant};
use crate::bench::fleet::{Domain, Fleet};
use crate::bench::reports::{Sections, batch, json};

const NODES: usize = 50;

/// What is measured: name, layout, reports in a transaction.
pub const LAYOUTS: [(&str, Layout, usize); 3] = [
    (
        "a JSON record for each node, one report in a transaction",
        Layout::Json,
        1,
    ),
    (
        "a JSON record for each node, 50 reports in a transaction",
        Layout::Json,
        NODES,
    ),
    (
        "a binary record for each node, 50 reports, one `ed25519_batch_verify`",
        Layout::Binary,
        NODES,
    ),
];

impl Bench {
    /// Every layout, in an instance of its own.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn layouts(&mut self, wasm: &[u8]) -> Result<Vec<Variant>> {
        let (code, _) = store(&mut self.sender, wasm).await?;
        let mut layouts = Vec::new();
        for (name, layout, n) in LAYOUTS {
            let row = self.layout(code, layout, n).await?;
            let name = name.to_owned();
            layouts.push(Variant { name, row });
        }
        Ok(layouts)
    }

    async fn layout(&mut self, code: u64, layout: Layout, n: usize) -> Result<Row> {
        let (contract, _) = instantiate(&mut self.sender, code, &InstantiateMsg { layout }).await?;
        let mut fleet = Fleet::new("naive-0", NODES)?;
        let domain = Domain {
            chain_id: &self.sender.chain_id,
            contract: &contract,
        };
        let register = ExecuteMsg::Register {
            nodes: fleet.place_naively(domain)?,
            cluster_id: fleet.cluster.clone(),
        };
        self.naive(&contract, &register).await?;
        let mut dearest: Option<Spent> = None;
        for round in 0..WARM_UP_ROUNDS + ROUNDS {
            let time = next_second().await?;
            let reports = fleet.reports(time, Sections::None, |number| number < n)?;
            let message = match layout {
                Layout::Json => ExecuteMsg::ReportJson {
                    reports: json(&fleet, &reports),
                },
                Layout::Binary => ExecuteMsg::ReportBinary {
                    reports: STANDARD.decode(batch(&reports)?)?.into(),
                },
            };
            let spent = self.naive(&contract, &message).await?;
            if round >= WARM_UP_ROUNDS && dearest.is_none_or(|d| d.gas < spent.gas) {
                dearest = Some(spent);
            }
        }
        for (number, node_id) in fleet.ids().into_iter().take(n).enumerate() {
            let sent = fleet.sequence(&node_id);
            let question = match layout {
                Layout::Json => QueryMsg::Json {
                    cluster_id: fleet.cluster.clone(),
                    node_id,
                },
                Layout::Binary => QueryMsg::Binary {
                    page: 0,
                    slot: u8::try_from(number)?,
                },
            };
            let stored: u32 = self.sender.chain.smart(&contract, &question).await?.value;
            ensure!(
                Some(stored) == sent,
                "node {number}: sent {sent:?}, on chain {stored}"
            );
        }
        let (n, spent) = (u64::try_from(n)?, dearest.context("nothing was measured")?);
        Ok(Row {
            n,
            clusters: 1,
            gas_used: spent.gas,
            gas_per_report: spent.gas.div_ceil(n),
            tx_bytes: spent.bytes,
        })
    }

    async fn naive(&mut self, contract: &str, message: &ExecuteMsg) -> Result<Spent> {
        let message = msg::execute(&self.sender.address, contract, message, &[])?;
        Ok(self.sender.send(vec![message]).await?.spent)
    }
}
