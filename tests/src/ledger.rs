//! Every report that any block of a chain has, with what became of it: read from the blocks themselves, so that "once"
//! is counted and not believed.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cosmrs::proto::cosmos::tx::v1beta1::{TxBody, TxRaw};
use cosmrs::proto::cosmwasm::wasm::v1::MsgExecuteContract;
use cosmrs::proto::traits::Message as _;
use hpc_chain::registry::response_data;
use hpc_chain::rpc::{Client, ClientOptions, ExecResult};
use hpc_schema::code::Code;
use hpc_schema::registry::{ExecuteMsg, RegisterAnswer, SubmitAnswer};
use hpc_schema::report::batch;

/// One report in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Block.
    pub height: u64,
    /// Why it did not count; `None`: it took effect.
    pub refused: Option<Code>,
}

/// A node's registration and a report's number in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The node.
    pub node: String,
    /// Its registration.
    pub epoch: u64,
    /// The report.
    pub sequence: u32,
}

/// All reports of one contract, in the order of the blocks.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Name, Vec<Entry>>,
    /// Who sits where: cluster, page, slot.
    seats: BTreeMap<(String, u16, u8), (String, u64)>,
    blocks: u64,
}

impl Ledger {
    /// Reads all blocks.
    ///
    /// # Errors
    /// If the chain does not answer, or has a batch that names no registered node.
    pub fn read(rpc: &str, contract: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let client = Client::new(rpc, ClientOptions::default())?;
            let status = client.status().await?;
            let mut ledger = Self::default();
            for height in status.earliest_height.max(1)..=status.height {
                let block = client.block(Some(height)).await?;
                ledger.blocks += 1;
                if block.txs.is_empty() {
                    continue;
                }
                let results = client.block_results(height).await?;
                ensure!(results.len() == block.txs.len(), "block {height} lacks results");
                for (tx, result) in block.txs.iter().zip(&results) {
                    if result.code == 0 {
                        ledger
                            .transaction(tx, result, contract, height)
                            .with_context(|| format!("block {height}"))?;
                    }
                }
            }
            Ok(ledger)
        })
    }

    /// Blocks that were read.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What became of a report, each time that it was in a block.
    #[must_use]
    pub fn of(&self, name: &Name) -> &[Entry] {
        self.entries.get(name).map_or(&[], Vec::as_slice)
    }

    /// All reports, by node.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.entries.keys()
    }

    /// How many reports took effect.
    ///
    /// # Errors
    /// If one did so twice.
    pub fn applied_once(&self) -> Result<usize> {
        let mut applied = 0;
        for (name, entries) in &self.entries {
            let times = entries.iter().filter(|e| e.refused.is_none()).count();
            ensure!(times <= 1, "{name:?} took effect {times} times: {entries:?}");
            applied += times;
        }
        Ok(applied)
    }

    fn transaction(&mut self, tx: &[u8], result: &ExecResult, contract: &str, height: u64) -> Result<()> {
        let body = TxBody::decode(TxRaw::decode(tx)?.body_bytes.as_slice())?;
        for (index, message) in body.messages.iter().enumerate() {
            if message.type_url != "/cosmwasm.wasm.v1.MsgExecuteContract" {
                continue;
            }
            let message = MsgExecuteContract::decode(message.value.as_slice())?;
            if message.contract != contract {
                continue;
            }
            let data = response_data(result, index)?.unwrap_or_default();
            match serde_json::from_slice(&message.msg)? {
                ExecuteMsg::RegisterNode { node_identity, .. } => {
                    let answer: RegisterAnswer = serde_json::from_slice(&data)?;
                    let seat = (node_identity.cluster_id.to_string(), answer.page, answer.slot);
                    self.seats
                        .insert(seat, (node_identity.node_id.to_string(), answer.epoch));
                }
                ExecuteMsg::SubmitReports { groups } => {
                    let answer: SubmitAnswer = serde_json::from_slice(&data)?;
                    ensure!(
                        answer.bad_groups.is_empty(),
                        "a group that cannot be read: {answer:?}"
                    );
                    let mut number = 0;
                    for group in groups {
                        let bytes = STANDARD.decode(&group.reports)?;
                        for item in batch::decode(&bytes).map_err(|code| anyhow!("{code}"))? {
                            let item = item.map_err(|code| anyhow!("{code}"))?;
                            let seat = (group.cluster_id.to_string(), item.page, item.slot);
                            let (node, epoch) = self.seats.get(&seat).context("nobody sits there")?.clone();
                            let refused = answer.refused.iter().find(|(at, _)| *at == number);
                            let refused =
                                refused.map(|(_, code)| Code::from_number(*code).context("no such code"));
                            let name = Name {
                                node,
                                epoch,
                                sequence: item.sequence,
                            };
                            self.entries.entry(name).or_default().push(Entry {
                                height,
                                refused: refused.transpose()?,
                            });
                            number += 1;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
