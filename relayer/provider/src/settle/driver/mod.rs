mod act;
mod away;
mod condition;
mod finish;
mod next;
mod parts;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use hpc_chain::code::Verdict;
use hpc_chain::registry::RegistryClient;
use hpc_chain::settle::{BatchId, Condition, Config as MachineConfig, End, Input, State};
use hpc_schema::id::ClusterId;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use away::Away;
pub use parts::{DriverParts, Shared, Signers};

use super::apart::{Apart, NodeKey};
use super::claims::Claims;
use super::fit::{Fit, Load};
use super::heads::Heads;
use super::queue::Queue;
use super::rota::Rota;
use super::sign::bound::Bound;
use super::sizing::Sizing;
use super::store::{self, Kind};
use super::wake::Wake;
use crate::clock::{self, Steady};
use crate::config::{Config, Live};
use crate::ops::{Health, Metrics};
use crate::registry::Registry;
use crate::spool::{self, Backlog};
use crate::store::{Store, StoreError};

/// After something that only time can mend, nothing new is planned for so long.
pub(super) const BACKOFF_MS: u64 = 3_000;

/// For so long what was seen waiting is what waits: a report that has come since goes next.
pub(super) const FRESH_MS: u64 = 1_000;

/// Registrations that let others pass, at most.
const MOST_ASIDE: usize = 256;
/// Nodes whose reports do.
const MOST_APART: usize = 32;

/// Drives the settlement machine of one signing key: does what it asks for, in its order.
#[derive(Debug)]
pub struct Driver {
    pub(super) config: Config,
    pub(super) live: Live,
    pub(super) signers: Signers,
    pub(super) client: RegistryClient,
    pub(super) store: Store,
    pub(super) registry: Arc<Registry>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) claims: Arc<Claims>,
    pub(super) machine: MachineConfig,
    pub(super) state: State,
    pub(super) bound: Option<Bound>,
    pub(super) job: Option<(BatchId, Kind, Option<ClusterId>)>,
    pub(super) backoff_until: Steady,
    pub(super) sizing: Sizing,
    pub(super) fit: Fit,
    /// What the gas of the transaction under way depends on.
    pub(super) load: Option<(BatchId, Load)>,
    /// Registrations that let others pass.
    pub(super) aside: Apart<u64>,
    /// Nodes whose reports do.
    pub(super) apart: Apart<NodeKey>,
    /// Whose turn it is of the chain's duties.
    pub(super) rota: Rota,
    pub(super) backlog: Backlog,
    wake: Arc<Wake>,
    calls: watch::Receiver<u64>,
    heads: Heads,
    ending: Option<(BatchId, End)>,
    /// What the outstanding transaction was refused with by an endpoint.
    refusal: Option<Verdict>,
    /// When the queue is looked at next, if nothing calls before.
    look_at: Steady,
    /// When it was looked at last.
    looked_at: Steady,
    /// What it found then, if that is to be sent.
    pub(super) looked: Option<(u64, Queue)>,
    /// When it is looked for duties next.
    duties_at: Steady,
    /// Whom no sweep passes over yet.
    away: Away,
    /// When somebody else was last seen to sign with the key, or the start; none: for long.
    shared_at: Option<Steady>,
    /// Kind of the last transaction: registrations and reports take turns.
    last: Option<Kind>,
}

/// The driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The store fails: nothing may be signed that is not on disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A transaction is under way of an account that is not known.
    #[error(
        "keys.relayer: key {name:?} has a transaction under way, and the store does not say of which account: name the key in \
         keys.extra_relayers until status shows no open transactions"
    )]
    Former {
        /// The key's name.
        name: String,
    },
    /// Every endpoint is of another chain.
    #[error("chain.rpc: every endpoint is of chain {found:?}, not of {wanted:?}")]
    WrongChain {
        /// What they say.
        found: String,
        /// What is configured.
        wanted: String,
    },
}

impl Driver {
    /// Takes up the machine's state where it was left.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume(parts: DriverParts) -> Result<Self, StoreError> {
        let DriverParts { shared, signers } = parts;
        let Shared {
            config,
            live,
            price,
            ceiling,
            client,
            store,
            registry,
            health,
            metrics,
            wake,
            claims,
            backlog,
            seen,
        } = shared;
        let state = store::load_state(store.reader(), &signers.name)
            .await?
            .unwrap_or_default();
        let learnt = store::learnt(store.reader(), &signers.name).await?;
        let now = clock::steady();
        let away = Away::of(&registry).await;
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let machine = MachineConfig {
            lifetime_ms: millis(config.chain.tx_lifetime.duration()),
            halt_after_ms: millis(config.chain.halt_after.duration()),
            ..MachineConfig::default()
        };
        Ok(Self {
            config,
            live,
            signers,
            client,
            store,
            registry,
            health,
            metrics,
            claims,
            machine,
            state,
            bound: None,
            job: None,
            backoff_until: now,
            rota: Rota::new(Sizing::new(price.clone(), None)),
            sizing: Sizing::new(price, ceiling).at(learnt),
            fit: Fit::default(),
            load: None,
            aside: Apart::at_most(MOST_ASIDE),
            apart: Apart::at_most(MOST_APART),
            backlog,
            calls: wake.calls(),
            wake,
            heads: Heads::new(seen),
            ending: None,
            refusal: None,
            look_at: now,
            looked_at: now,
            looked: None,
            duties_at: now,
            away,
            // What was said before a restart ends as well.
            shared_at: Some(now),
            last: None,
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
        let former = self.signers.relayer.is_none();
        loop {
            self.turn(!former).await?;
            if former && self.state.is_idle() {
                self.clear_alarms();
                tracing::info!(
                    signer = self.signers.name,
                    "nothing is under way any more of a key that is used no more"
                );
                drop(stop.wait_for(|s| *s).await);
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(self.pause()) => {}
                () = self.heads.changed() => {}
                _ = self.calls.changed() => {}
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

    /// How long nothing need be looked at if nothing happens: to the next deadline, and not longer than a poll.
    fn pause(&self) -> Duration {
        let poll = self.config.chain.poll.duration();
        if !self.state.is_idle() {
            return poll;
        }
        let next = self.look_at.max(self.backoff_until);
        let left = Duration::from_millis(next.since(clock::steady()).max(1));
        left.min(poll)
    }

    /// What is new of the chain, and what follows from it.
    async fn turn(&mut self, take_new: bool) -> Result<(), DriverError> {
        if let Some(found) = self.heads.foreign() {
            return Err(DriverError::WrongChain {
                found,
                wanted: self.config.chain.id.clone(),
            });
        }
        for input in self.heads.inputs() {
            self.feed(input).await?;
        }
        self.feed(Input::Tick).await?;
        self.look_away(clock::steady()).await;
        self.finish().await?;
        self.looked
            .take_if(|(at, _)| clock::now_ms().abs_diff(*at) > FRESH_MS);
        self.report_condition();
        let now = clock::steady();
        self.report_sharing(now);
        if take_new && self.state.is_idle() && now >= self.backoff_until {
            self.take_up().await?;
        }
        Ok(())
    }

    /// By a clock that is wrong agents are turned away.
    async fn look_away(&mut self, now: Steady) {
        let wrong = self.state.condition() == Condition::CatchingUp;
        if self.away.is_due_anew(wrong, now) {
            self.away = Away::of(&self.registry).await;
        }
    }

    /// After a restart: the pages of the transaction that is under way are this key's.
    pub(in crate::settle) async fn claim_outstanding(&self) -> Result<(), StoreError> {
        let Some((batch, _)) = self.state.job() else {
            return Ok(());
        };
        let members = self.backlog.members(&self.store, batch.0).await?;
        let page = |m: &spool::Member| {
            let node = self.registry.node(&m.cluster_id, &m.node_id)?;
            Some((m.cluster_id.clone(), node.chain.page))
        };
        let pages = members.iter().filter_map(page).collect();
        if !self.claims.claim(&self.signers.name, pages) {
            tracing::warn!(
                signer = self.signers.name,
                "two keys have reports of one page under way"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
pub(in crate::settle) mod tests {
    use std::path::Path;

    use hpc_chain::keys::LocalKey;
    use hpc_chain::query::Chain;
    use hpc_chain::rpc::{ClientOptions, Endpoints};

    use super::*;

    /// A driver on an empty store, of a chain that cannot be reached. It waits for no agents.
    pub(in crate::settle) async fn driver(dir: &Path) -> Driver {
        let mut driver = Driver::resume(parts(dir).await).await.unwrap();
        driver.away.waits_from(clock::now_ms(), clock::steady(), 120);
        driver
    }

    /// One that pays this for gas.
    pub(super) async fn priced(dir: &Path, price: &str, ceiling: &str) -> Driver {
        let mut parts = parts(dir).await;
        parts.shared.price = price.parse().unwrap();
        parts.shared.ceiling = Some(ceiling.parse().unwrap());
        Driver::resume(parts).await.unwrap()
    }

    /// The parts of [`driver`].
    pub(super) async fn parts(dir: &Path) -> DriverParts {
        let key = || Arc::new(LocalKey::from_secret(&[7; 32]).unwrap());
        let endpoints = Endpoints::new(&["http://127.0.0.1:9"], ClientOptions::default()).unwrap();
        let contract = "wasm1contract";
        let shared = Shared {
            config: Config::default(),
            live: Live::new(Config::default()),
            price: "0stake".parse().unwrap(),
            ceiling: None,
            client: RegistryClient::new(Chain::new(endpoints), contract),
            store: Store::open(&dir.join("p.db")).await.unwrap(),
            registry: Arc::new(Registry::new("chain-1", contract)),
            health: Arc::default(),
            metrics: Arc::default(),
            wake: Arc::default(),
            claims: Arc::default(),
            backlog: Backlog::default(),
            seen: watch::channel(Vec::new()).1,
        };
        let signers = Signers {
            name: "relayer".into(),
            relayer: Some(key()),
            address: key().address("wasm").unwrap(),
            operator_name: "operator".into(),
            operator: key(),
            prefix: "wasm".into(),
            granter: None,
            duties: true,
        };
        DriverParts { shared, signers }
    }
}
