mod condition;
mod next;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hpc_chain::code::Verdict;
use hpc_chain::gas::{Adjustment, GasPrice};
use hpc_chain::keys::LocalKey;
use hpc_chain::registry::RegistryClient;
use hpc_chain::settle::io::perform;
use hpc_chain::settle::{Action, BatchId, Config as MachineConfig, End, Input, State, step};
use hpc_schema::id::ClusterId;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::ending::{self, Ending, EndingError};
use super::io;
use super::sign::Bound;
use super::store::{self, Kind};
use crate::config::Config;
use crate::ops::{Health, Metrics, TxLabels};
use crate::registry::{Registry, sync_nodes};
use crate::store::{Store, StoreError};
use crate::{clock, fault};

/// After something that only time can mend, nothing new is planned for so long.
const BACKOFF_MS: u64 = 3_000;

/// Keys and the addresses of their accounts.
#[derive(Debug)]
pub struct Signers {
    /// Name of the paying key in the keyring.
    pub name: String,
    /// Pays and signs transactions.
    pub relayer: LocalKey,
    /// Its account.
    pub address: String,
    /// Signs identities of nodes.
    pub operator: LocalKey,
    /// Bech32 prefix of both.
    pub prefix: String,
}

/// Drives the settlement machine of one signing key: does what it asks for, in its order.
#[derive(Debug)]
pub struct Driver {
    pub(super) config: Config,
    pub(super) signers: Signers,
    pub(super) price: GasPrice,
    pub(super) client: RegistryClient,
    pub(super) store: Store,
    pub(super) registry: Arc<Registry>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) state: State,
    pub(super) bound: Option<Bound>,
    pub(super) job: Option<(BatchId, Kind, Option<ClusterId>)>,
    pub(super) backoff_until: u64,
    /// Halvings of the largest batch after failures.
    pub(super) shrink: u32,
    pub(super) adjustment: Adjustment,
    wake: Arc<Notify>,
    ending: Option<(BatchId, End)>,
    swept_at: u64,
    /// Kind of the last transaction: registrations and reports take turns.
    last: Option<Kind>,
    heads: io::Heads,
}

/// The driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The store fails: nothing may be signed that is not on disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Every endpoint is of another chain.
    #[error("chain.rpc: every endpoint is of chain {found:?}, not of {wanted:?}")]
    WrongChain {
        /// What they say.
        found: String,
        /// What is configured.
        wanted: String,
    },
}

/// The parts of a [`Driver`].
#[derive(Debug)]
pub struct DriverParts {
    /// As configured.
    pub config: Config,
    /// Keys.
    pub signers: Signers,
    /// What a unit of gas is paid with.
    pub price: GasPrice,
    /// The contract.
    pub client: RegistryClient,
    /// The database.
    pub store: Store,
    /// The chain as last seen.
    pub registry: Arc<Registry>,
    /// Readiness.
    pub health: Arc<Health>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Told when there is something to settle at once.
    pub wake: Arc<Notify>,
}

impl Driver {
    /// Takes up the machine's state where it was left.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume(parts: DriverParts) -> Result<Self, StoreError> {
        let DriverParts {
            config,
            signers,
            price,
            client,
            store,
            registry,
            health,
            metrics,
            wake,
        } = parts;
        let state = store::load_state(store.reader(), &signers.name)
            .await?
            .unwrap_or_default();
        Ok(Self {
            config,
            signers,
            price,
            client,
            store,
            registry,
            health,
            metrics,
            state,
            bound: None,
            job: None,
            backoff_until: 0,
            shrink: 0,
            adjustment: Adjustment::default(),
            wake,
            ending: None,
            swept_at: 0,
            last: None,
            heads: io::Heads::default(),
        })
    }

    /// Runs until `stop` turns true and the transaction under way has ended, or its time is over.
    ///
    /// # Errors
    /// [`DriverError`].
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), DriverError> {
        self.feed(Input::Restarted).await?;
        let mut tx = self.store.begin().await?;
        store::drop_unsigned(&mut tx, &self.signers.name, None).await?;
        tx.commit().await.map_err(StoreError::from)?;
        loop {
            self.turn(true).await?;
            tokio::select! {
                () = tokio::time::sleep(self.config.chain.poll.duration()) => {}
                () = self.wake.notified() => {}
                _ = stop.wait_for(|s| *s) => break,
            }
        }
        let until = Instant::now() + self.config.stop.settlement.duration();
        while self.state.outstanding().is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || timeout(left, self.turn(false)).await.is_err() {
                tracing::info!("a transaction has not ended; the next start goes on with it");
                break;
            }
            tokio::time::sleep(self.config.chain.poll.duration().min(Duration::from_millis(500))).await;
        }
        Ok(())
    }

    /// One look at the chain, and what follows from it.
    async fn turn(&mut self, take_new: bool) -> Result<(), DriverError> {
        for input in io::heads(
            &mut self.heads,
            &self.client,
            &self.config,
            &self.registry,
            &self.metrics,
        )
        .await?
        {
            self.feed(input).await?;
        }
        self.feed(Input::Tick).await?;
        self.finish().await?;
        self.report_condition();
        if take_new && self.state.is_idle() && clock::now_ms() >= self.backoff_until {
            self.take_up().await?;
        }
        Ok(())
    }

    /// Steps the machine and does what it says; what comes of that is fed in turn.
    pub(super) async fn feed(&mut self, input: Input) -> Result<(), DriverError> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if matches!(&input, Input::Found(i) if i.code == 0) {
                fault::point("settle.found");
            }
            let actions = step(&mut self.state, &MachineConfig::default(), clock::now_ms(), input);
            for action in actions {
                self.act(action, &mut inputs).await?;
            }
        }
        Ok(())
    }

    async fn act(&mut self, action: Action, inputs: &mut VecDeque<Input>) -> Result<(), DriverError> {
        match action {
            Action::Persist => self.persist().await?,
            Action::Sign(request) => inputs.push_back(Box::pin(self.sign(request)).await?),
            Action::Broadcast { .. } => {
                fault::point("settle.broadcasting");
                inputs.extend(self.ask(&action).await);
                fault::point("settle.broadcast");
            }
            Action::QueryTx { .. } | Action::QueryAccount | Action::ScanBlocks { .. } => {
                inputs.extend(self.ask(&action).await);
            }
            Action::QueryNodeSequences { batch } => {
                let height = self.state.height().unwrap_or_default();
                self.ending = Some((batch, End::Consumed { height }));
            }
            Action::Finished { batch, end } => {
                fault::point("settle.ended");
                self.ending = Some((batch, end));
            }
            Action::Busy { batch } => tracing::error!(batch = batch.0, "the settlement machine was busy"),
            Action::Alarm(alarm) => self.alarm(&alarm),
        }
        Ok(())
    }

    async fn ask(&self, question: &Action) -> Vec<Input> {
        perform(self.client.chain(), &self.signers.address, &self.state, question).await
    }

    /// Stores the state; with a fresh transaction also what is in it, in the same commit.
    async fn persist(&mut self) -> Result<(), DriverError> {
        let now = clock::now_ms();
        let mut tx = self.store.begin().await?;
        let bound = self
            .bound
            .take()
            .filter(|b| self.state.outstanding().is_some_and(|o| o.hash == b.row.hash));
        if let Some(bound) = &bound {
            bound.write(&mut tx, now).await?;
        }
        store::save_state(&mut tx, &self.signers.name, &self.state, now).await?;
        fault::point("settle.persisting");
        tx.commit().await.map_err(StoreError::from)?;
        if let Some(bound) = bound {
            self.metrics.signed.inc();
            tracing::info!(batch = bound.batch.0, tx = %bound.row.hash, sequence = bound.row.sequence,
                timeout_height = bound.row.timeout_height, gas = bound.row.gas_limit, items = bound.items(), "transaction signed");
        }
        fault::point("settle.persisted");
        Ok(())
    }

    /// Works off a proven end; tried again at the next turn if the chain cannot be asked.
    async fn finish(&mut self) -> Result<(), DriverError> {
        let Some((batch, end)) = self.ending.clone() else {
            return Ok(());
        };
        match self.settle(batch, &end).await {
            Ok(()) => self.ending = None,
            Err(EndingError::Query(e)) => {
                tracing::warn!(batch = batch.0, error = %e, "the outcomes of a transaction cannot be read yet");
            }
            Err(EndingError::Store(e)) => return Err(e.into()),
        }
        Ok(())
    }

    async fn settle(&mut self, batch: BatchId, end: &End) -> Result<(), EndingError> {
        let known = store::unended(self.store.reader(), batch).await?;
        let ending = match known {
            Some((Kind::Reports, hash)) => {
                ending::of_reports(&self.client, &self.store, batch, hash, end).await?
            }
            Some((Kind::Register, hash)) => {
                ending::of_registrations(&self.client, &self.store, batch, hash, end).await?
            }
            Some((Kind::Sweep, _)) | None => Ending::Nothing,
        };
        fault::point("settle.outcomes");
        let now = clock::now_ms();
        let mut settled = self.state.clone();
        // The one action that may follow is to persist, which happens in the commit below.
        drop(step(
            &mut settled,
            &MachineConfig::default(),
            now,
            Input::Settled { batch },
        ));
        let height = match end {
            End::Included(i) | End::Failed(i) => Some(i.height),
            End::Expired { .. } | End::Consumed { .. } => None,
        };
        let mut tx = self.store.begin().await?;
        ending::write(&mut tx, batch, &ending, height, now).await?;
        store::record_end(&mut tx, batch, end, now).await?;
        store::save_state(&mut tx, &self.signers.name, &settled, now).await?;
        fault::point("settle.settling");
        tx.commit().await.map_err(StoreError::from)?;
        fault::point("settle.settled");
        self.state = settled;
        if let Some((kind, hash)) = known {
            self.after(kind, end);
            let hash = hash.map(|h| h.to_string()).unwrap_or_default();
            tracing::info!(
                batch = batch.0,
                kind = kind.as_str(),
                tx = hash,
                end = store::end_word(end),
                "transaction ended"
            );
        }
        for (cluster, ids) in ending::announce(&ending, &self.registry, &self.metrics) {
            if let Err(e) = sync_nodes(&self.client, &self.store, &self.registry, &cluster, &ids, now).await {
                tracing::debug!(%cluster, error = %e, "nodes are read again at the next round");
            }
        }
        Ok(())
    }

    /// What the end says about the next transaction.
    fn after(&mut self, kind: Kind, end: &End) {
        let labels = TxLabels {
            kind: kind.as_str(),
            end: store::end_word(end),
        };
        self.metrics.transactions.get_or_create(&labels).inc();
        match end {
            End::Included(_) => {
                self.shrink = 0;
                self.adjustment = Adjustment::default();
                self.health.clear("insufficient_funds");
                self.health.clear("transactions_refused");
                self.health.clear("account_unknown");
            }
            End::Failed(i) => {
                let verdict = hpc_chain::code::of_abci(&i.codespace, i.code, &i.log);
                tracing::warn!(code = i.code, codespace = %i.codespace, "transaction failed: {}; {}", i.log, verdict.remedy());
                self.shrink = (self.shrink + 1).min(10);
                if verdict == Verdict::OutOfGas {
                    self.adjustment = "2".parse().unwrap_or_default();
                }
                self.backoff_until = clock::now_ms() + BACKOFF_MS;
            }
            End::Expired { .. } | End::Consumed { .. } => {}
        }
    }
}
