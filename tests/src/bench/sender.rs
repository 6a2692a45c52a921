//! One account that sends transactions and waits for each.

use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hpc_chain::keys::LocalKey;
use hpc_chain::query::Chain;
use hpc_chain::rpc::{ClientOptions, Endpoints, TxAnswer};
use hpc_chain::tx::{Fee, SignerData, Unsigned, sign};

/// Any protobuf message of a transaction.
pub type Message = cosmrs::Any;

/// An account on a chain.
#[derive(Debug)]
pub struct Sender {
    /// The chain.
    pub chain: Chain,
    /// Its id.
    pub chain_id: String,
    /// The account's key.
    pub key: LocalKey,
    /// Its address.
    pub address: String,
    number: u64,
    sequence: u64,
}

/// Prefix of the addresses of test chains.
pub const PREFIX: &str = "wasm";

impl Sender {
    /// The account of `key` on the chain at `rpc`.
    ///
    /// # Errors
    /// If the chain does not answer or does not know the account.
    pub async fn connect(rpc: &str, key: LocalKey) -> Result<Self> {
        let options = ClientOptions {
            timeout: Duration::from_secs(30),
            ..ClientOptions::default()
        };
        let chain = Chain::new(Endpoints::new(&[rpc], options)?);
        let chain_id = chain.chain_id().await?;
        let address = key.address(PREFIX)?;
        let account = chain
            .account(&address)
            .await?
            .value
            .context("the account does not exist")?;
        Ok(Self {
            chain,
            chain_id,
            key,
            address,
            number: account.number,
            sequence: account.sequence,
        })
    }

    /// Signs and sends one transaction without fee; returns it as the block has it, and its size in bytes.
    ///
    /// # Errors
    /// If it is refused, fails, or is in no block after 60 s.
    pub async fn send(&mut self, messages: Vec<Message>, gas_limit: u64) -> Result<(TxAnswer, usize)> {
        let client = self.chain.endpoints().best().context("no endpoint")?.clone();
        let height = client.status().await?.height;
        let unsigned = Unsigned {
            messages,
            memo: String::new(),
            timeout_height: NonZeroU64::new(height + 200).context("the height is 0")?,
            fee: Fee {
                amount: Vec::new(),
                gas_limit,
            },
        };
        let signer = SignerData {
            chain_id: &self.chain_id,
            account_number: self.number,
            sequence: self.sequence,
        };
        let signed = sign(&self.key, signer, &unsigned)?;
        let check = client.broadcast_tx_sync(&signed.bytes).await?;
        ensure!(
            check.code == 0,
            "CheckTx refused with {:?}: {}",
            check.verdict,
            check.log
        );
        self.sequence += 1;
        for _ in 0..600 {
            if let Some(answer) = client.tx(signed.hash).await? {
                ensure!(
                    answer.result.code == 0,
                    "the transaction failed: {}",
                    answer.result.log
                );
                return Ok((answer, signed.bytes.len()));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the transaction is in no block after 60 s")
    }
}
