use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::body::{self, Site};
use super::group::{Group, Status};
use super::outbox::{self, Message};
use super::own::{self, UNWRITABLE, Whose, Written};
use super::sink::{Kind, Sink, SinkError, sinks};
use super::{book, nodes};
use crate::clock;
use crate::config::Alerts;
use crate::home::Home;
use crate::ops::{Health, Metrics, Trouble};
use crate::registry::Registry;
use crate::store::{Store, StoreError};

/// How often it is looked what is wrong, and whether there is something to tell.
const EVERY: Duration = Duration::from_secs(1);
/// How often nodes are compared with their alerts, and certificates looked at.
const RARELY: Duration = Duration::from_secs(10);
/// How often an Alertmanager is told again what goes on: it forgets with a restart.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest pause between two tries of a delivery.
const MOST_PAUSE_MS: u64 = 300_000;
/// A receiver that has not taken a message for so long is a trouble itself.
const FAILING_MS: u64 = 600_000;
/// What a gateway says of itself ends when it was not heard of for so long.
const SILENT_MS: u64 = 60_000;
/// How long a stop waits for a delivery.
const LAST: Duration = Duration::from_secs(3);

/// What alerts need.
#[derive(Debug, Clone)]
pub struct Parts {
    /// As configured.
    pub config: Alerts,
    /// The daemon's directory.
    pub home: Home,
    /// The database.
    pub store: Store,
    /// The chain in memory.
    pub registry: Arc<Registry>,
    /// Troubles.
    pub health: Arc<Health>,
    /// Gauges.
    pub metrics: Arc<Metrics>,
    /// This gateway's name among those that share the store; none: it is alone.
    pub instance: Option<String>,
}

impl Parts {
    fn wait_ms(&self) -> u64 {
        u64::try_from(self.config.group_wait.duration().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Starts a task that looks what is wrong, and one for each receiver, so that one that hangs keeps nobody waiting.
///
/// # Errors
/// A secret or certificate that cannot be used.
pub fn start(parts: &Parts, stop: &watch::Receiver<bool>) -> Result<Vec<JoinHandle<()>>, SinkError> {
    super::check(&parts.config)?;
    let sinks = sinks(&parts.config)?;
    let ids: Vec<String> = sinks.iter().map(|s| s.id.clone()).collect();
    let mut tasks = vec![tokio::spawn(look(parts.clone(), ids, stop.clone()))];
    for sink in sinks {
        tasks.push(tokio::spawn(tell(parts.clone(), sink, stop.clone())));
    }
    Ok(tasks)
}

/// Starts what each of several gateways does for itself, whether or not it settles: its own troubles are written for the one
/// that tells them, and of a store that fails it tells past it.
///
/// # Errors
/// A secret or certificate that cannot be used.
pub fn start_of_each(parts: &Parts, stop: &watch::Receiver<bool>) -> Result<Vec<JoinHandle<()>>, SinkError> {
    super::check(&parts.config)?;
    let mut tasks = vec![tokio::spawn(look_at_own(parts.clone(), stop.clone()))];
    for sink in sinks(&parts.config)? {
        tasks.push(tokio::spawn(tell_directly(parts.clone(), sink, stop.clone())));
    }
    Ok(tasks)
}

async fn look_at_own(parts: Parts, mut stop: watch::Receiver<bool>) {
    let mut written = Written::new(Whose::Each(parts.instance.clone().unwrap_or_default()));
    let mut rarely: Option<Instant> = None;
    loop {
        let now = clock::now_ms();
        let due = rarely.is_none_or(|at| at.elapsed() >= RARELY);
        if due {
            rarely = Some(Instant::now());
            own::look_at_certificates(&parts.config, &parts.home, &parts.health, now / 1000);
        }
        let turn = async {
            written
                .update(&parts.store, &parts.health.troubles(), now)
                .await?;
            if due {
                written.goes_on(&parts.store, now).await?;
            }
            Ok::<(), StoreError>(())
        };
        if let Err(e) = turn.await {
            tracing::debug!(error = %e, "alerts cannot be written");
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn tell_directly(parts: Parts, sink: Sink, mut stop: watch::Receiver<bool>) {
    let mut teller = Teller::new(parts, sink);
    loop {
        let turn = async {
            teller.past_the_store().await;
            sleep(EVERY).await;
        };
        tokio::select! {
            () = turn => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn look(parts: Parts, sinks: Vec<String>, mut stop: watch::Receiver<bool>) {
    let alone = parts.instance.is_none();
    let mut written = Written::new(if alone { Whose::Alone } else { Whose::Site });
    let mut rarely: Option<Instant> = None;
    let mut purged = false;
    loop {
        own::look(&parts.config, &parts.metrics, &parts.health);
        let due = rarely.is_none_or(|at| at.elapsed() >= RARELY);
        let turn = async {
            if !purged {
                let ids: Vec<&str> = sinks.iter().map(String::as_str).collect();
                outbox::keep_only(&parts.store, &ids).await?;
            }
            let now = clock::now_ms();
            written
                .update(&parts.store, &parts.health.troubles(), now)
                .await?;
            if due {
                if alone {
                    own::look_at_certificates(&parts.config, &parts.home, &parts.health, now / 1000);
                }
                nodes::compare(&parts.store, &parts.registry.nodes(), now).await?;
                let mut tx = parts.store.begin().await?;
                book::end_silent(&mut tx, now.saturating_sub(SILENT_MS), now).await?;
                book::forget(&mut tx, sinks.len(), parts.wait_ms(), now).await?;
                tx.commit().await?;
            }
            Ok::<(), StoreError>(())
        };
        match turn.await {
            Ok(()) => purged = true,
            Err(e) => tracing::debug!(error = %e, "alerts cannot be written"),
        }
        if due {
            rarely = Some(Instant::now());
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn tell(parts: Parts, sink: Sink, mut stop: watch::Receiver<bool>) {
    let mut teller = Teller::new(parts, sink);
    loop {
        let more = tokio::select! {
            more = teller.turn() => more,
            // What is under way may still arrive; if not, it goes again after the start.
            _ = stop.wait_for(|s| *s) => break,
        };
        if more {
            continue;
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => break,
        }
    }
    drop(timeout(LAST, teller.turn()).await);
}

struct Teller {
    parts: Parts,
    sink: Sink,
    site: Site,
    direct: Direct,
    again_at: Instant,
}

/// What a receiver is told past the store, while that fails.
#[derive(Debug, Default)]
struct Direct {
    since: Option<(Instant, Trouble)>,
    told: bool,
}

impl Teller {
    fn new(parts: Parts, sink: Sink) -> Self {
        let site = Site {
            chain_id: parts.registry.chain_id().to_owned(),
            contract: parts.registry.contract().to_owned(),
        };
        Self {
            parts,
            sink,
            site,
            direct: Direct::default(),
            again_at: Instant::now() + AGAIN,
        }
    }

    /// Delivers what there is; whether there may be more.
    async fn turn(&mut self) -> bool {
        // Of several gateways each does so for itself.
        if self.parts.instance.is_none() {
            self.past_the_store().await;
        }
        let wait_ms = self.parts.wait_ms();
        match outbox::next(
            &self.parts.store,
            &self.sink.id,
            self.sink.kind,
            &self.site,
            wait_ms,
        )
        .await
        {
            Ok(Some(message)) => self.deliver(message).await,
            Ok(None) => {
                self.again().await;
                false
            }
            Err(e) => {
                tracing::debug!(error = %e, "alerts cannot be read");
                false
            }
        }
    }

    async fn deliver(&self, message: Message) -> bool {
        let now = clock::now_ms();
        if message.next_at > now {
            return false;
        }
        let Message { id, body, .. } = message;
        let sent = self.sink.deliver(&id, body).await;
        let stored = match &sent {
            Ok(()) => {
                self.parts.health.clear_of("alert_sink_failing", &self.sink.name);
                outbox::delivered(&self.parts.store, &self.sink.id, &id).await
            }
            Err(e) => {
                tracing::info!(receiver = self.sink.name, error = %e, "an alert was not taken; it goes again");
                if now.saturating_sub(message.created_at) > FAILING_MS {
                    let text = format!("{}: {e}", self.sink.name);
                    self.parts
                        .health
                        .raise_of("alert_sink_failing", &self.sink.name, text);
                }
                let next_at = clock::now_ms().saturating_add(pause_ms(message.attempts, &id));
                outbox::failed(&self.parts.store, &self.sink.id, &id, next_at).await
            }
        };
        if let Err(e) = stored {
            tracing::debug!(error = %e, "what became of an alert cannot be written");
            return false;
        }
        sent.is_ok()
    }

    /// The store that fails cannot hold the alert that it does.
    async fn past_the_store(&mut self) {
        let trouble = self
            .parts
            .health
            .troubles()
            .into_iter()
            .find(|t| t.code == UNWRITABLE);
        let wait = self.parts.config.group_wait.duration();
        match (trouble, self.direct.since.clone()) {
            (Some(trouble), None) => self.direct.since = Some((Instant::now(), trouble)),
            (Some(_), Some((since, trouble))) if !self.direct.told && since.elapsed() >= wait => {
                self.direct.told = self.send(&trouble, Status::Firing).await;
            }
            (None, Some((_, trouble))) => {
                if !self.direct.told || self.send(&trouble, Status::Resolved).await {
                    self.direct = Direct::default();
                }
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    async fn send(&self, trouble: &Trouble, status: Status) -> bool {
        let now = clock::now_ms();
        let instance = self.parts.instance.as_deref().unwrap_or_default();
        let mut alert = own::alert(trouble, instance, now);
        alert.ended_at = (status == Status::Resolved).then_some(now);
        let group = Group {
            status,
            alerts: vec![alert],
        };
        let Ok(id) = clock::random::<16>() else {
            return false;
        };
        let id = hex::encode(id);
        let text = body::write(self.sink.kind, &self.site, &id, &group, now);
        self.sink.deliver(&id, text).await.is_ok()
    }

    /// An Alertmanager is told again what goes on.
    async fn again(&mut self) {
        if self.sink.kind != Kind::Alertmanager || Instant::now() < self.again_at {
            return;
        }
        self.again_at = Instant::now() + AGAIN;
        let Ok(standing) = outbox::standing(&self.parts.store, &self.sink.id).await else {
            return;
        };
        for part in standing.chunks(body::most(self.sink.kind)) {
            let text = body::alertmanager(&self.site, part, Status::Firing, clock::now_ms()).to_string();
            if let Err(e) = self.sink.deliver("again", text).await {
                tracing::debug!(receiver = self.sink.name, error = %e, "what goes on was not taken again");
                return;
            }
        }
    }
}

/// A second, and twice as long with each failure, to five minutes; spread by the message's id.
fn pause_ms(attempts: u32, id: &str) -> u64 {
    let pause = 1_000u64.saturating_mul(1 << attempts.min(20)).min(MOST_PAUSE_MS);
    let spread = id
        .bytes()
        .fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)))
        % 250;
    pause.saturating_add(pause.saturating_mul(spread) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_minutes_and_a_quarter() {
        let pauses: Vec<u64> = (0..40).map(|n| pause_ms(n, "ab")).collect();
        assert!(
            pauses.is_sorted() && pauses[0] < 1_300 && pauses[39] <= 375_000,
            "{pauses:?}"
        );
    }
}
