//! One transaction from a person's hands to its end: the settlement machine without a durable store.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cosmrs::Any;

use crate::code::{self, Verdict};
use crate::gas::{Adjustment, Coin, GasPrice, MoneyError};
use crate::hash::TxHash;
use crate::keys::{KeyError, LocalKey};
use crate::query::{Chain, QueryError};
use crate::rpc::{Client, TxAnswer};
use crate::settle::{
    self, Action, Alarm, BatchId, CheckTx, Condition, End, Inclusion, Input, SignRequest, SignedTx, State, io,
};
use crate::tx::{self, Fee, SignerData, Unsigned};
use hpc_schema::code::Code;

/// The gas limit of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gas {
    /// Simulate, then multiply.
    Auto(Adjustment),
    /// Exactly so much.
    Fixed(u64),
}

/// What is paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pay {
    /// ceil(gas × price).
    Price(GasPrice),
    /// These coins, whatever the gas.
    Coins(Vec<Coin>),
}

/// How to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendOptions {
    /// Chain id; every endpoint must name it.
    pub chain_id: String,
    /// Bech32 prefix of addresses.
    pub prefix: String,
    /// Gas limit.
    pub gas: Gas,
    /// Fee.
    pub pay: Pay,
    /// For people.
    pub memo: String,
    /// Longest wait for the end; afterwards the outcome is unknown and the hash is told.
    pub deadline: Duration,
}

/// A transaction that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// With its events and data.
    pub tx: TxAnswer,
    /// What was paid.
    pub fee: Fee,
}

/// Why a transaction did not take effect, or why that is not known.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SendError {
    /// A question failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The fee cannot be computed.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// The key failed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The endpoint serves another chain.
    #[error("the node's chain is {found}, not {wanted}; set --chain-id or --node")]
    WrongChain {
        /// Wanted.
        wanted: String,
        /// Found.
        found: String,
    },
    /// The chain does not know the account.
    #[error("account {address} does not exist on the chain; send it tokens first")]
    AccountUnknown {
        /// The signer.
        address: String,
    },
    /// No new blocks.
    #[error(
        "the chain makes no new blocks, or their time is far from this machine's clock (last height {height}); \
         nothing was sent"
    )]
    Halted {
        /// Last height.
        height: u64,
    },
    /// Refused before it came into a block; it will not take effect after `timeout_height`.
    #[error("{log} (codespace {codespace}, code {abci_code}); {remedy}")]
    Refused {
        /// Its meaning.
        verdict: Verdict,
        /// ABCI code.
        abci_code: u32,
        /// ABCI codespace.
        codespace: String,
        /// The chain's text.
        log: String,
        /// What to do.
        remedy: &'static str,
    },
    /// In a block, without effect.
    #[error("{message} (transaction {hash} in block {height}, codespace {codespace}, code {abci_code})")]
    Failed {
        /// The registry's stable code, if it gave one.
        code: Option<Code>,
        /// ABCI code.
        abci_code: u32,
        /// ABCI codespace.
        codespace: String,
        /// The contract's or the chain's text.
        message: String,
        /// Hash.
        hash: TxHash,
        /// Block.
        height: u64,
    },
    /// Never came into a block and never will.
    #[error("transaction {hash} was in no block up to its timeout height and never will be; send it again")]
    Expired {
        /// Hash.
        hash: TxHash,
    },
    /// Its sequence was used by another transaction of the same key.
    #[error(
        "another transaction of this key took the place of {hash}; use one process per key, then send it again"
    )]
    Superseded {
        /// Hash.
        hash: TxHash,
    },
    /// The wait is over without an end.
    #[error(
        "no end of transaction {hash} within the wait; it may still take effect up to block {timeout_height}: \
         query it by its hash before sending it again"
    )]
    Unknown {
        /// Hash.
        hash: TxHash,
        /// T.
        timeout_height: u64,
    },
    /// The wait was over before anything was sent.
    #[error("the node gave no usable block and account within the wait; nothing was sent")]
    NothingSent,
}

/// Signs `messages` with `key`, sends them and waits for the end.
///
/// # Errors
/// Every way in which it did not take effect; [`SendError::Unknown`] where that is not known.
pub async fn send_and_wait(
    chain: &Chain,
    key: &LocalKey,
    options: &SendOptions,
    messages: Vec<Any>,
) -> Result<Sent, SendError> {
    let found = chain.chain_id().await?;
    if found != options.chain_id {
        return Err(SendError::WrongChain {
            wanted: options.chain_id.clone(),
            found,
        });
    }
    let address = key.address(&options.prefix)?;
    let Some(account) = chain.account(&address).await?.value else {
        return Err(SendError::AccountUnknown { address });
    };
    let mut draft = Unsigned {
        messages,
        memo: options.memo.clone(),
        timeout_height: NonZeroU64::MAX,
        fee: Fee::default(),
    };
    draft.fee = fee(chain, key, account.sequence, options, &draft).await?;
    let mut sender = Sender {
        chain,
        key,
        options,
        address,
        draft,
        state: State::default(),
        refusal: None,
        taken: false,
    };
    let deadline = tokio::time::Instant::now() + options.deadline;
    match tokio::time::timeout_at(deadline, sender.run()).await {
        Ok(ended) => ended,
        Err(_) => Err(sender.out_of_time()),
    }
}

/// The gas limit and what it costs.
///
/// # Errors
/// What the simulation shows: [`QueryError::Contract`], [`QueryError::Refused`].
pub async fn fee(
    chain: &Chain,
    key: &LocalKey,
    sequence: u64,
    options: &SendOptions,
    draft: &Unsigned,
) -> Result<Fee, SendError> {
    let gas_limit = match options.gas {
        Gas::Fixed(gas) => gas,
        Gas::Auto(adjustment) => {
            // Paying a fee costs gas itself (some 18,000), so a simulation without one would fall short; the amount does
            // not matter. The same holds for the bytes of the timeout height.
            let amount = match &options.pay {
                Pay::Price(price) => price.fee(1)?.into_iter().collect(),
                Pay::Coins(coins) => coins.clone(),
            };
            let simulated = Unsigned {
                fee: Fee { amount, gas_limit: 0 },
                ..draft.clone()
            };
            let used = chain
                .simulate(tx::simulation_bytes(key, sequence, &simulated))
                .await?;
            adjustment.apply(used)
        }
    };
    let amount = match &options.pay {
        Pay::Price(price) => price.fee(gas_limit)?.into_iter().collect(),
        Pay::Coins(coins) => coins.clone(),
    };
    Ok(Fee { amount, gas_limit })
}

struct Sender<'a> {
    chain: &'a Chain,
    key: &'a LocalKey,
    options: &'a SendOptions,
    address: String,
    draft: Unsigned,
    state: State,
    /// The last refusal by an endpoint.
    refusal: Option<SendError>,
    /// Whether some endpoint may hold the bytes.
    taken: bool,
}

/// The machine's name for the one batch.
const ONLY: BatchId = BatchId(0);

impl Sender<'_> {
    async fn run(&mut self) -> Result<Sent, SendError> {
        let config = settle::Config::default();
        let mut inbox: Vec<Input> = Vec::new();
        inbox.extend(io::older_head(self.chain).await);
        inbox.extend(io::heads(self.chain, &self.options.chain_id).await);
        inbox.push(Input::Submit { batch: ONLY });
        loop {
            for input in std::mem::take(&mut inbox) {
                for action in settle::step(&mut self.state, &config, now_ms(), input) {
                    match action {
                        Action::Sign(request) => inbox.push(Input::Signed(self.sign(request)?)),
                        // Provably dead, so its sequence is free: sign it anew while there is time.
                        Action::Finished {
                            end: End::Expired { .. },
                            ..
                        } if self.refusal.is_none() => {
                            self.taken = false;
                            inbox.push(Input::Settled { batch: ONLY });
                            inbox.push(Input::Submit { batch: ONLY });
                        }
                        Action::Finished { end, .. } => return self.ended(end).await,
                        Action::QueryNodeSequences { .. } => return Err(self.superseded()),
                        Action::Alarm(alarm) => self.alarm(alarm)?,
                        other => {
                            let answers = io::perform(self.chain, &self.address, &self.state, &other).await;
                            self.taken |= answers.iter().any(may_be_taken);
                            inbox.extend(answers);
                        }
                    }
                }
            }
            // A refusal is told at once if no endpoint may have taken the bytes: they are nowhere.
            if !self.taken
                && inbox.is_empty()
                && let Some(refusal) = self.refusal.take()
            {
                return Err(refusal);
            }
            if inbox.is_empty() {
                tokio::time::sleep(Duration::from_millis(300)).await;
                inbox.push(Input::Tick);
                inbox.extend(io::heads(self.chain, &self.options.chain_id).await);
            }
        }
    }

    fn sign(&self, request: SignRequest) -> Result<SignedTx, SendError> {
        let timeout_height = NonZeroU64::new(request.timeout_height).unwrap_or(NonZeroU64::MIN);
        let unsigned = Unsigned {
            timeout_height,
            ..self.draft.clone()
        };
        let signer = SignerData {
            chain_id: &self.options.chain_id,
            account_number: request.account_number,
            sequence: request.sequence,
        };
        let signed = tx::sign(self.key, signer, &unsigned)?;
        Ok(SignedTx {
            request,
            bytes: signed.bytes,
        })
    }

    fn alarm(&mut self, alarm: Alarm) -> Result<(), SendError> {
        match alarm {
            Alarm::Halted { height } if self.state.outstanding().is_none() => Err(SendError::Halted {
                height: height.unwrap_or(0),
            }),
            Alarm::AccountUnknown => Err(SendError::AccountUnknown {
                address: self.address.clone(),
            }),
            Alarm::Refused {
                verdict,
                code,
                codespace,
                log,
                ..
            } => {
                let remedy = verdict.remedy();
                self.refusal = Some(SendError::Refused {
                    verdict,
                    abci_code: code,
                    codespace,
                    log,
                    remedy,
                });
                Ok(())
            }
            Alarm::Halted { .. }
            | Alarm::Resumed { .. }
            | Alarm::BlockTimeOff { .. }
            | Alarm::ForeignTransaction { .. }
            | Alarm::SequenceRegressed { .. } => Ok(()),
        }
    }

    async fn ended(&self, end: End) -> Result<Sent, SendError> {
        match end {
            End::Included(Inclusion { hash, .. }) => {
                let tx = self
                    .chain
                    .endpoints()
                    .ask(|c: Client| async move { c.tx(hash).await })
                    .await;
                let tx = tx.map_err(QueryError::from)?.ok_or_else(|| self.unknown())?;
                Ok(Sent {
                    tx,
                    fee: self.draft.fee.clone(),
                })
            }
            End::Failed(i) => Err(SendError::Failed {
                code: code::contract_code(&i.log),
                message: code::contract_message(&i.log).to_owned(),
                abci_code: i.code,
                codespace: i.codespace,
                hash: i.hash,
                height: i.height,
            }),
            End::Expired { .. } => Err(self.refusal.clone().unwrap_or_else(|| self.expired())),
            End::Consumed { .. } => Err(self.superseded()),
        }
    }

    fn hash(&self) -> Option<TxHash> {
        self.state.outstanding().map(|tx| tx.hash)
    }

    fn expired(&self) -> SendError {
        self.hash()
            .map_or(SendError::NothingSent, |hash| SendError::Expired { hash })
    }

    fn superseded(&self) -> SendError {
        self.hash()
            .map_or(SendError::NothingSent, |hash| SendError::Superseded { hash })
    }

    fn unknown(&self) -> SendError {
        self.state
            .outstanding()
            .map_or(SendError::NothingSent, |tx| SendError::Unknown {
                hash: tx.hash,
                timeout_height: tx.timeout_height,
            })
    }

    fn out_of_time(&self) -> SendError {
        match self.state.condition() {
            Condition::Halted | Condition::CatchingUp if self.state.outstanding().is_none() => {
                SendError::Halted {
                    height: self.state.height().unwrap_or(0),
                }
            }
            _ => self.unknown(),
        }
    }
}

/// Whether a broadcast may have left the bytes with an endpoint.
fn may_be_taken(input: &Input) -> bool {
    let Input::CheckTx { answer, .. } = input else {
        return false;
    };
    match answer {
        CheckTx::Unclear => true,
        CheckTx::Answered { verdict, .. } => {
            matches!(
                verdict,
                Verdict::Accepted | Verdict::AlreadyInCache | Verdict::WrongSequence { .. }
            )
        }
    }
}

/// The wall clock in UNIX milliseconds.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
