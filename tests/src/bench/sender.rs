//! One account that sends transactions and waits for each.

use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hpc_chain::gas::Coin;
use hpc_chain::keys::LocalKey;
use hpc_chain::query::{Account, Chain};
use hpc_chain::rpc::{ClientOptions, Endpoints, TxAnswer};
use hpc_chain::tx::{Fee, SignerData, Unsigned, sign};

use super::figures::Spent;

/// Any protobuf message of a transaction.
pub type Message = cosmrs::Any;

/// Far above what any transaction here needs.
pub const GAS_LIMIT: u64 = 200_000_000;

/// Prefix of the addresses of test chains.
pub const PREFIX: &str = "wasm";

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

/// A chain with a large genesis counts its first block before it answers.
async fn first_answer(chain: &Chain, address: &str) -> Result<Option<Account>> {
    let mut left = 600;
    loop {
        match chain.account(address).await {
            Ok(answer) => return Ok(answer.value),
            Err(error) if left == 0 => return Err(error.into()),
            Err(_) => left -= 1,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A transaction in a block.
#[derive(Debug)]
pub struct Done {
    /// As the block has it.
    pub answer: TxAnswer,
    /// What it took.
    pub spent: Spent,
}

impl Sender {
    /// The account of `key` on the chain at `rpc`.
    ///
    /// # Errors
    /// If the chain does not answer or does not know the account.
    pub async fn connect(rpc: &str, key: LocalKey) -> Result<Self> {
        let options = ClientOptions {
            timeout: Duration::from_secs(60),
            ..ClientOptions::default()
        };
        let chain = Chain::new(Endpoints::new(&[rpc], options)?);
        let chain_id = chain.chain_id().await?;
        let address = key.address(PREFIX)?;
        let account = first_answer(&chain, &address).await?;
        let account = account.context("the account does not exist")?;
        Ok(Self {
            chain,
            chain_id,
            key,
            address,
            number: account.number,
            sequence: account.sequence,
        })
    }

    /// Signs and sends one transaction without fee.
    ///
    /// # Errors
    /// If it is refused, fails, or is in no block after two minutes.
    pub async fn send(&mut self, messages: Vec<Message>) -> Result<Done> {
        self.send_with(messages, Vec::new()).await
    }

    /// The same with a fee.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn send_with(&mut self, messages: Vec<Message>, fee: Vec<Coin>) -> Result<Done> {
        let mut done = self.send_all(vec![messages], &fee).await?;
        done.pop().context("nothing was sent")
    }

    /// Several transactions one after the other, without waiting in between: blocks take as many as there are.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn send_all(&mut self, transactions: Vec<Vec<Message>>, fee: &[Coin]) -> Result<Vec<Done>> {
        let client = self.chain.endpoints().best().context("no endpoint")?.clone();
        let height = client.status().await?.height;
        let mut sent = Vec::new();
        for messages in transactions {
            let unsigned = Unsigned {
                messages,
                memo: String::new(),
                timeout_height: NonZeroU64::new(height + 1_000).context("the height is 0")?,
                fee: Fee {
                    amount: fee.to_vec(),
                    gas_limit: GAS_LIMIT,
                    granter: None,
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
            sent.push(signed);
        }
        let mut done = Vec::new();
        'sent: for signed in sent {
            for _ in 0..1_200 {
                if let Some(answer) = client.tx(signed.hash).await? {
                    let result = &answer.result;
                    ensure!(result.code == 0, "the transaction failed: {}", result.log);
                    let spent = Spent {
                        gas: result.gas_used,
                        bytes: u64::try_from(signed.bytes.len())?,
                    };
                    done.push(Done { answer, spent });
                    continue 'sent;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            bail!("the transaction is in no block after two minutes");
        }
        Ok(done)
    }
}
