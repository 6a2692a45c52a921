//! Gas of what the contract does, measured in transactions of their own on a real chain.

mod batches;
mod layouts;
mod messages;
mod upkeep;

use anyhow::{Context, Result, ensure};
use hpc_chain::gas::Coin;
use hpc_chain::msg;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_schema::registry::{ExecuteMsg, InstantiateMsg, ParamsUpdate};

use super::figures::Spent;
use super::fleet::{Domain, Fleet};
use super::sender::{Done, Message, Sender};
use super::silent::create;
use crate::raw::now;

pub use layouts::LAYOUTS;
pub use upkeep::{FILL_MEAN, FILL_WORST, SWEEP_IDLE, SWEEP_STALE};

/// Registrations in one transaction, where they are not what is measured.
const REGISTRATIONS: usize = 32;

/// A registry on a chain, with the account that owns it and its clusters.
#[derive(Debug)]
pub struct Bench {
    sender: Sender,
    client: RegistryClient,
}

impl Bench {
    /// Works with the registry that is there.
    #[must_use]
    pub fn new(sender: Sender, contract: &str) -> Self {
        let client = RegistryClient::new(sender.chain.clone(), contract);
        Self { sender, client }
    }

    /// Goes on with another registry.
    pub fn turn_to(&mut self, contract: &str) {
        self.client = RegistryClient::new(self.sender.chain.clone(), contract);
    }

    /// Instantiates a code and goes on with that registry.
    ///
    /// # Errors
    /// If the transaction fails.
    pub async fn instantiate(&mut self, code_id: u64) -> Result<Spent> {
        let init = InstantiateMsg {
            admin: None,
            params: ParamsUpdate::default(),
        };
        let (contract, spent) = instantiate(&mut self.sender, code_id, &init).await?;
        self.turn_to(&contract);
        Ok(spent)
    }

    fn domain(&self) -> Domain<'_> {
        Domain {
            chain_id: &self.sender.chain_id,
            contract: self.client.contract(),
        }
    }

    /// A new cluster of `count` registered nodes.
    async fn fleet(&mut self, cluster: &str, count: usize) -> Result<Fleet> {
        let mut fleet = Fleet::new(cluster, count)?;
        self.send(&create(&fleet)).await?;
        self.register(&mut fleet).await?;
        Ok(fleet)
    }

    async fn register(&mut self, fleet: &mut Fleet) -> Result<()> {
        let registrations = fleet.registrations(self.domain(), &self.sender.key, now()?)?;
        let transactions = registrations.chunks(REGISTRATIONS);
        let transactions = transactions.map(|t| self.encode(t)).collect::<Result<_>>()?;
        self.sender.send_all(transactions, &[]).await?;
        self.place(fleet).await
    }

    async fn place(&self, fleet: &mut Fleet) -> Result<()> {
        let mut views = Vec::new();
        for ids in fleet.ids().chunks(100) {
            let answer = self.client.relay(fleet.cluster.clone(), ids.to_vec()).await?;
            views.extend(answer.value.nodes);
        }
        fleet.place(self.domain(), &views)
    }

    /// The reports that were counted took effect: the contract has the last sequence of every node that sent one.
    async fn check(&self, fleet: &Fleet) -> Result<()> {
        for ids in fleet.ids().chunks(100) {
            let answer = self.client.relay(fleet.cluster.clone(), ids.to_vec()).await?;
            for view in answer.value.nodes {
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

    fn encode(&self, messages: &[ExecuteMsg]) -> Result<Vec<Message>> {
        let encode = |m| self.client.execute(&self.sender.address, m, &[]);
        Ok(messages.iter().map(encode).collect::<Result<_, _>>()?)
    }

    async fn send(&mut self, messages: &[ExecuteMsg]) -> Result<Spent> {
        Ok(self.send_with(messages, &[], Vec::new()).await?.spent)
    }

    /// With coins for the contract, and a fee.
    async fn send_with(&mut self, messages: &[ExecuteMsg], funds: &[Coin], fee: Vec<Coin>) -> Result<Done> {
        let encode = |m| self.client.execute(&self.sender.address, m, funds);
        let messages = messages.iter().map(encode).collect::<Result<_, _>>()?;
        self.sender.send_with(messages, fee).await
    }
}

/// Stores a code.
///
/// # Errors
/// If the transaction fails.
async fn store(sender: &mut Sender, wasm: &[u8]) -> Result<(u64, Spent)> {
    let store = msg::store_code(&sender.address, wasm);
    let done = sender.send(vec![store]).await?;
    Ok((text(&done, "MsgStoreCode")?.parse()?, done.spent))
}

/// Instantiates a code; the sender may migrate it.
async fn instantiate<M: serde::Serialize>(
    sender: &mut Sender,
    code_id: u64,
    init: &M,
) -> Result<(String, Spent)> {
    let owner = sender.address.clone();
    let make = msg::instantiate(&owner, Some(&owner), code_id, "bench", init, &[])?;
    let done = sender.send(vec![make]).await?;
    Ok((text(&done, "MsgInstantiateContract")?, done.spent))
}

/// The text that a wasm message answers with.
fn text(done: &Done, kind: &str) -> Result<String> {
    let data = response_data(&done.answer.result, 0)?;
    Ok(String::from_utf8(
        data.with_context(|| format!("no answer to {kind}"))?,
    )?)
}

/// What a registry message answers with.
fn answer<A: serde::de::DeserializeOwned>(done: &Done) -> Result<A> {
    let data = response_data(&done.answer.result, 0)?.context("the contract answers nothing")?;
    Ok(serde_json::from_slice(&data)?)
}
