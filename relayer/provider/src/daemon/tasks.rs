use std::sync::{Arc, Weak};
use std::time::Duration;

use hpc_chain::keys::SharedSigner;
use hpc_chain::registry::RegistryClient;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::admin::credential::Known;
use crate::config::Live;
use crate::control::{Controls, Nudge, Nudges, Refreshed};
use crate::gateway::Gateway;
use crate::home::Home;
use crate::ops::{Health, Metrics};
use crate::registry::{self, Registry};
use crate::settle::{self, Driver};
use crate::store::{Store, StoreError};
use crate::{clock, command, events, prove, slot, spool, task};

use super::reload::Reload;
use super::{forget, task_keys};

/// How often it is asked which nodes there are at all.
const DISCOVER_EVERY: Duration = Duration::from_secs(600);
/// The same after one cluster could not be read: all others were, and they are not read whole each time for its sake.
const DISCOVER_AGAIN: Duration = Duration::from_secs(60);
/// How often gauges are set and old records forgotten.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How often operators' decisions are looked for.
const CONTROL_EVERY: Duration = Duration::from_millis(250);
/// How long ended orders stay on record.
const COMMANDS_KEPT_SECONDS: u64 = 30 * 24 * 3600;
/// How long the chain's events of our nodes stay on record.
const EVENTS_KEPT_MS: u64 = 7 * 24 * 3600 * 1000;
/// How often the gateway's certificate is looked at, and what is old is forgotten.
const CERTIFICATE_EVERY: Duration = Duration::from_secs(3600);

/// What the tasks share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) live: Live,
    pub(super) home: Home,
    pub(super) client: RegistryClient,
    pub(super) store: Store,
    pub(super) registry: Arc<Registry>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) controls: Arc<Controls>,
    /// The operator key as it was opened at the start, whatever the keyring's passphrase is by now.
    pub(super) operator: SharedSigner,
    /// Credentials of the admin listener that were shown a moment ago.
    pub(super) credentials: Arc<Known>,
}

/// Looks for operators' decisions; a quarter of a second is how late a revocation takes effect.
pub(super) async fn control(
    shared: Shared,
    reload: Reload,
    gateway: Weak<Gateway>,
    mut stop: watch::Receiver<bool>,
) {
    let Shared {
        home,
        store,
        controls,
        health,
        registry,
        metrics,
        credentials,
        ..
    } = shared;
    let nudges = Nudges::listen(&home);
    let changes = store.changes();
    let mut mark = registry::Mark::default();
    loop {
        // Here, where nobody waits for what writes.
        if let Some(gateway) = gateway.upgrade() {
            metrics
                .intake_behind_seconds
                .set(gateway.judge.behind().as_secs());
        }
        if let Err(e) = registry::catch_up(&store, &registry, &mut mark, clock::now()).await {
            tracing::debug!(error = %e, "what other gateways have read is looked for again");
        }
        match controls.refresh(&store).await {
            Ok(found) => {
                health.clear("controls_failing");
                if found == Refreshed::Files {
                    // Said and shown by itself.
                    drop(reload.run().await);
                }
                if found != Refreshed::Same {
                    wake(&store, &gateway).await;
                }
            }
            Err(e) => health.raise("controls_failing", format!("decisions cannot be read: {e}")),
        }
        let again = Instant::now() + CONTROL_EVERY;
        let nudged = loop {
            tokio::select! {
                nudge = nudges.heard() => match nudge {
                    Nudge::Look => break true,
                    // Its own request claims what waits; nothing is to be read before.
                    Nudge::Node(cluster, node) => {
                        if let Some(gateway) = gateway.upgrade() {
                            gateway.waiting.wake(&cluster, &node);
                        }
                    }
                },
                () = changes.heard() => break true,
                () = sleep_until(again) => break false,
                _ = stop.wait_for(|s| *s) => return,
            }
        };
        if nudged {
            credentials.forget();
            wake(&store, &gateway).await;
        }
    }
}

/// Wakes every node for which a task or a cancellation waits.
async fn wake(store: &Store, gateway: &Weak<Gateway>) {
    let Some(gateway) = gateway.upgrade() else { return };
    if gateway.waiting.count() == 0 {
        return;
    }
    match task::waiting_nodes(store.reader(), clock::now_ms()).await {
        Ok(nodes) => {
            for (cluster, node) in nodes {
                gateway.waiting.wake(&cluster, &node);
            }
        }
        Err(e) => tracing::warn!(error = %e, "tasks that wait cannot be read"),
    }
}

/// Reads the chain again and again.
pub(super) async fn sync(shared: Shared, mut stop: watch::Receiver<bool>) {
    let Shared {
        live,
        client,
        store,
        registry,
        health,
        ..
    } = shared;
    let mut discover_at = Instant::now();
    let mut turns = registry::Turns::default();
    let mut undiscovered = false;
    loop {
        let config = live.get();
        let discover = Instant::now() >= discover_at;
        let clusters = &config.chain.clusters;
        match registry::sync(
            &client,
            &store,
            &registry,
            clusters,
            &mut turns,
            discover,
            clock::now_ms(),
        )
        .await
        {
            Ok(()) => {
                if discover {
                    discover_at = Instant::now() + DISCOVER_EVERY;
                }
                // What one that looks for all could not read, one that does not has not read either.
                undiscovered &= !discover;
                if !undiscovered {
                    health.clear("not_synced");
                }
            }
            Err(e) => {
                if (discover || registry.has_unread()) && e.is_of_one() {
                    let again = Instant::now() + DISCOVER_AGAIN;
                    // Rounds in between do not put it off.
                    discover_at = if discover { again } else { discover_at.min(again) };
                    undiscovered = true;
                }
                let what = match e {
                    registry::SyncError::Cluster(..) => e.to_string(),
                    _ => format!("the chain cannot be read: {e}"),
                };
                health.raise("not_synced", what);
            }
        }
        health.started();
        tokio::select! {
            () = sleep(config.chain.sync.duration()) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

/// Gauges, history, nonces, the gateway's certificate.
pub(super) async fn keep(
    shared: Shared,
    gateway: Weak<Gateway>,
    reload: Reload,
    mut stop: watch::Receiver<bool>,
) {
    let mut looked = Instant::now();
    loop {
        if let Err(e) = keep_once(&shared).await {
            shared.health.raise("store_failing", e.to_string());
        } else {
            shared.health.clear("store_failing");
        }
        if let Some(gateway) = gateway.upgrade() {
            gateway.judge.prune(clock::now());
            shared.health.set("row_unreadable", gateway.judge.mended());
            task_keys::look(&shared.home, &shared.store, &shared.health, &gateway).await;
            // Leases that are over.
            wake(&shared.store, &Arc::downgrade(&gateway)).await;
            if looked.elapsed() >= CERTIFICATE_EVERY {
                looked = Instant::now();
                reload.look_at_server();
                forget::old(&shared.store, &gateway).await;
            }
        }
        let stops = tokio::select! {
            () = sleep(KEEP_EVERY) => false,
            _ = stop.wait_for(|s| *s) => true,
        };
        if stops {
            if let Err(e) = registry::save_contacts(&shared.store, &shared.registry).await {
                tracing::warn!(error = %e, "where nodes were last seen is not on disk");
            }
            return;
        }
    }
}

async fn keep_once(shared: &Shared) -> Result<(), StoreError> {
    let Shared {
        live,
        store,
        registry,
        metrics,
        ..
    } = shared;
    Driver::measure(store, registry, metrics).await?;
    let kept = u64::try_from(live.get().store.history.duration().as_millis()).unwrap_or(u64::MAX);
    let before = clock::now_ms().saturating_sub(kept);
    registry::save_contacts(store, registry).await?;
    registry::heard_elsewhere(store, registry).await?;
    let now = clock::now();
    let mut tx = store.begin().await?;
    command::expire(&mut tx, now).await?;
    command::prune(&mut tx, now.minus(COMMANDS_KEPT_SECONDS)).await?;
    task::keep(&mut tx, clock::now_ms()).await?;
    slot::sweep(&mut tx, clock::now_ms()).await?;
    let kept = u64::try_from(live.get().tasks.history.duration().as_millis()).unwrap_or(u64::MAX);
    task::prune(&mut tx, clock::now_ms().saturating_sub(kept)).await?;
    spool::prune(&mut tx, before).await?;
    settle::prune_batches(&mut tx, before).await?;
    events::prune(&mut tx, clock::now_ms().saturating_sub(EVENTS_KEPT_MS)).await?;
    let kept = live.get().agents.proofs_kept_ms();
    prove::prune(&mut tx, clock::now_ms().saturating_sub(kept)).await?;
    tx.commit().await?;
    Ok(())
}
