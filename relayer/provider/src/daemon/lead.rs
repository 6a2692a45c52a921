//! What one of several gateways on a store does: settlement, registrations, sweeps, events, alerts, anchors. A gateway that
//! takes it over does what a start does: it takes up everything where the store says that it was left.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::error::StartError;
use super::running::Running;
use super::tasks::Shared;
use crate::settle::{self, Claims, DriverError, Signers};
use crate::store::{HOLDS, Lease, Store, StoreError};
use crate::{alert, clock, events, prove, registry};

/// How often a gateway that stands by looks whether it is needed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a lease is renewed.
const RENEW_EVERY: Duration = Duration::from_millis(800);
/// So long before its end a lease counts as lost.
const MARGIN: Duration = Duration::from_millis(500);
/// How long each task may take to end.
const LAST: Duration = Duration::from_secs(5);
/// The trouble of a store that settlement cannot use.
const STORE_FAILING: &str = "store_failing";
const SETTLEMENT: &str = "settlement";
/// What is said of the tasks that tell alerts, should one end.
const ALERTS: &str = "the telling of alerts";
/// How long settlement waits for a store that fails, and how long it must have gone on for the trouble to be over.
const TRY_AGAIN: Duration = Duration::from_secs(1);
const SOUND: Duration = Duration::from_secs(10);

/// What the duties need.
#[derive(Debug)]
pub(super) struct Duties {
    pub(super) settling: settle::Shared,
    pub(super) alerting: alert::Parts,
    pub(super) following: events::Follow,
    pub(super) shared: Shared,
}

/// Starts the tasks that go on beside settlement.
fn beside(
    duties: &Duties,
    store: &Store,
    stops: &watch::Receiver<bool>,
    tasks: &mut Running,
) -> Result<(), alert::SinkError> {
    let alerting = alert::Parts {
        store: store.clone(),
        ..duties.alerting.clone()
    };
    let following = events::Follow {
        store: store.clone(),
        ..duties.following.clone()
    };
    let shared = Shared {
        store: store.clone(),
        ..duties.shared.clone()
    };
    let proving = prove::collect(shared.client.clone(), store.clone(), stops.clone());
    tasks.watch(ALERTS, alert::start(&alerting, stops)?);
    tasks.start(
        "the reading of the chain's events",
        events::follow(following, stops.clone()),
    );
    tasks.start(
        "the anchoring of the audit log",
        super::anchor::anchor(shared, stops.clone()),
    );
    tasks.start("the gathering of proofs", proving);
    Ok(())
}

/// How a gateway's turn ended.
enum Ended {
    /// It stops, or settlement ended by itself.
    Settled(Result<(), DriverError>),
    /// This task beside it ended by itself.
    Beside(&'static str),
    /// Another one may have the duties now.
    Lost,
}

impl Duties {
    /// Starts what settles: at once where the store is this gateway's alone, when its turn comes where it is not.
    ///
    /// # Errors
    /// [`StartError`].
    pub(super) async fn begin(
        self,
        signers: Vec<Signers>,
        (stop, stop_rest): (watch::Receiver<bool>, watch::Receiver<bool>),
        rest: &mut Running,
    ) -> Result<JoinHandle<Result<(), StartError>>, StartError> {
        let store = self.shared.store.clone();
        if store.is_shared() {
            rest.watch(ALERTS, alert::start_of_each(&self.alerting, &stop_rest)?);
            return Ok(tokio::spawn(self.share(signers, stop)));
        }
        let drivers = settle::resume(&self.settling, signers.clone()).await?;
        beside(&self, &store, &stop_rest, rest)?;
        self.shared.metrics.settles.set(1);
        Ok(tokio::spawn(async move {
            let ended = self.alone(drivers, &signers, stop).await;
            ended.map_err(StartError::from)
        }))
    }

    /// Settles until `stop`. A store that fails, such as one on a full disk, is no end: the daemon goes on saying so, and
    /// settlement is taken up again where the store says that it was left.
    ///
    /// # Errors
    /// What settlement cannot go on with, other than the store.
    async fn alone(
        &self,
        drivers: Vec<settle::Driver>,
        signers: &[Signers],
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), DriverError> {
        let health = &self.shared.health;
        let mut taken = Ok(drivers);
        loop {
            let ended = match taken {
                Ok(drivers) => {
                    let running = settle::run_all(drivers, stop.clone());
                    tokio::pin!(running);
                    tokio::select! {
                        ended = &mut running => ended,
                        () = sleep(SOUND) => {
                            health.clear_of(STORE_FAILING, SETTLEMENT);
                            running.await
                        }
                    }
                }
                Err(e) => Err(e),
            };
            let Err(DriverError::Store(e)) = ended else {
                return ended;
            };
            health.raise_of(
                STORE_FAILING,
                SETTLEMENT,
                format!("nothing is settled; look at the disk of --home: {e}"),
            );
            tokio::select! {
                () = sleep(TRY_AGAIN) => {}
                _ = stop.wait_for(|s| *s) => return Err(e.into()),
            }
            taken = self.take_up(signers).await;
        }
    }

    async fn take_up(&self, signers: &[Signers]) -> Result<Vec<settle::Driver>, DriverError> {
        // The one connection that writes: whatever was still being written is, or is not.
        drop(self.shared.store.begin().await?);
        // Who was put apart is known to those that have ended; whoever is at fault still is put apart anew.
        self.shared.health.forget(|code| code == "transactions_refused");
        let settling = settle::Shared {
            // Who has which pages under way is read from the store.
            claims: Claims::default().into(),
            ..self.settling.clone()
        };
        settle::resume(&settling, signers.to_vec()).await
    }

    /// Takes the duties whenever nobody has them, until `stop`.
    ///
    /// # Errors
    /// What settlement cannot go on with, other than the store: that may come back.
    async fn share(self, signers: Vec<Signers>, mut stop: watch::Receiver<bool>) -> Result<(), StartError> {
        let holder = holder();
        let accounts: Vec<_> = signers.iter().map(|s| s.address.clone()).collect();
        loop {
            let taken = Instant::now();
            match in_time(self.shared.store.lease(&holder, &accounts)).await {
                Ok(Some(lease)) => {
                    if let Some(ended) = Box::pin(self.turn(&lease, &signers, taken, &stop)).await {
                        return ended;
                    }
                }
                Ok(None) => self.stand_by(),
                Err(e) => {
                    self.stand_by();
                    tracing::warn!(error = %e, "whether another gateway settles cannot be asked");
                }
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                _ = stop.wait_for(|s| *s) => return Ok(()),
            }
        }
    }

    fn stand_by(&self) {
        self.shared.metrics.settles.set(0);
        // Of these only the gateway that settles knows.
        self.shared.health.forget(|code| !alert::is_of_each(code));
        self.shared.health.stands_by();
    }

    /// Does the duties as long as the lease holds; how settlement ended, if not with the lease or the store.
    async fn turn(
        &self,
        lease: &Lease,
        signers: &[Signers],
        taken: Instant,
        stop: &watch::Receiver<bool>,
    ) -> Option<Result<(), StartError>> {
        tracing::info!("this gateway settles from now on");
        self.shared.metrics.settles.set(1);
        let (stop_beside, stops) = watch::channel(false);
        let mut tasks = Running::default();
        let (store, held) = (lease.store(), hold(lease, taken));
        tokio::pin!(held);
        // A server that is silent from here on does not answer what is read at the start either.
        let started = tokio::select! {
            started = self.start(&store, signers) => Some(started),
            () = &mut held => None,
        };
        let ended = match started {
            None => Ended::Lost,
            Some(Ok(drivers)) => match beside(self, &store, &stops, &mut tasks) {
                Ok(()) => tokio::select! {
                    ended = settle::run_all(drivers, stop.clone()) => Ended::Settled(ended),
                    name = tasks.ended() => Ended::Beside(name),
                    () = &mut held => Ended::Lost,
                },
                Err(e) => {
                    tracing::error!(error = %e, "alerts cannot be sent");
                    Ended::Lost
                }
            },
            Some(Err(StartError::Driver(e))) => Ended::Settled(Err(e)),
            Some(Err(e)) => {
                tracing::error!(error = %e, "settlement cannot start; tried again");
                Ended::Lost
            }
        };
        let orderly = matches!(ended, Ended::Settled(Ok(()))) && *stop.borrow();
        stop_beside.send_replace(true);
        for (_, task) in tasks.into_tasks() {
            let abort = task.abort_handle();
            if !orderly || timeout(LAST, task).await.is_err() {
                abort.abort();
            }
        }
        // Before the store is asked, which may be silent until another gateway has it.
        self.shared.metrics.settles.set(0);
        if let Err(e) = in_time(lease.give_up()).await {
            tracing::debug!(error = %e, "the lease ends by itself");
        }
        match ended {
            Ended::Settled(Err(DriverError::Store(e))) => {
                tracing::warn!(error = %e, "this gateway settles no more: the store fails");
                None
            }
            Ended::Settled(ended) => Some(ended.map_err(StartError::from)),
            Ended::Beside(name) => Some(Err(StartError::Ended(name))),
            Ended::Lost => {
                tracing::warn!("this gateway settles no more");
                None
            }
        }
    }

    async fn start(&self, store: &Store, signers: &[Signers]) -> Result<Vec<settle::Driver>, StartError> {
        let registry = &self.shared.registry;
        registry::catch_up(store, registry, &mut registry::Mark::default(), clock::now()).await?;
        let settling = settle::Shared {
            store: store.clone(),
            // Who has which pages under way is read from the store.
            claims: Claims::default().into(),
            ..self.settling.clone()
        };
        Ok(settle::resume(&settling, signers.to_vec()).await?)
    }
}

/// A server that went away while it was asked never answers.
async fn in_time<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(sqlx::Error::PoolTimedOut.into());
    timeout(HOLDS, asked).await.unwrap_or_else(late)
}

/// Renews the lease; ends when it may not hold any more.
async fn hold(lease: &Lease, taken: Instant) {
    let mut until = taken + HOLDS - MARGIN;
    loop {
        sleep_until(until.min(Instant::now() + RENEW_EVERY)).await;
        let asked = Instant::now();
        if asked >= until {
            return;
        }
        match timeout_at(until, lease.renew()).await {
            Ok(Ok(true)) => until = asked + HOLDS - MARGIN,
            Ok(Ok(false)) => return,
            Ok(Err(e)) => tracing::debug!(error = %e, "a lease could not be renewed; tried again"),
            Err(_) => {}
        }
    }
}

/// This process, told apart from every other one.
fn holder() -> String {
    let host = rustix::system::uname();
    let chance = clock::random::<8>().map(hex::encode).unwrap_or_default();
    format!(
        "{}/{}/{chance}",
        host.nodename().to_string_lossy(),
        std::process::id()
    )
}
