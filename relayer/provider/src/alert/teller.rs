//! What a receiver is told, message by message.

use std::time::Duration;

use tokio::time::Instant;

use super::body::{self, Site};
use super::group::{Group, Status};
use super::outbox::{self, Message};
use super::own::{self, UNWRITABLE};
use super::parts::Parts;
use super::sink::{Kind, Sink, SinkError};
use super::tries::{FAILING_MS, Tries};
use crate::clock;
use crate::ops::Trouble;
use crate::store::StoreError;

/// How often an Alertmanager is told again what goes on: it forgets with a restart.
const AGAIN: Duration = Duration::from_secs(60);
/// That one was dropped is a trouble for so long.
const DROPPED: Duration = Duration::from_secs(600);

/// One receiver, and what it is told.
pub(super) struct Teller {
    parts: Parts,
    sink: Sink,
    site: Site,
    direct: Direct,
    again_at: Instant,
    tries: Tries,
    dropped_at: Option<Instant>,
}

/// What a receiver is told past the store, while that fails.
#[derive(Debug, Default)]
struct Direct {
    since: Option<Failing>,
    told_at: Option<Instant>,
}

/// The store fails.
#[derive(Debug, Clone)]
struct Failing {
    since: Instant,
    /// The same in UNIX milliseconds.
    since_ms: u64,
    trouble: Trouble,
}

impl Teller {
    pub(super) fn new(parts: Parts, sink: Sink) -> Self {
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
            tries: Tries::default(),
            dropped_at: None,
        }
    }

    /// Delivers what there is; whether there may be more.
    pub(super) async fn turn(&mut self) -> bool {
        self.alone_past_the_store().await;
        let wait_ms = self.parts.wait_ms();
        let next = outbox::next(
            &self.parts.store,
            &self.sink.id,
            self.sink.kind,
            &self.site,
            wait_ms,
        );
        let more = match next.await {
            Ok(Some(message)) => self.deliver(message).await,
            Ok(None) => {
                // Whatever it was sent it has taken, or that was dropped.
                self.nothing_fails();
                false
            }
            Err(e) => {
                tracing::debug!(error = %e, "alerts cannot be read");
                false
            }
        };
        // Whatever is in the way of the next message.
        if !more {
            self.again().await;
        }
        more
    }

    async fn deliver(&mut self, message: Message) -> bool {
        let (now, steady) = (clock::now_ms(), clock::steady());
        self.tries.turn_to(&message, now, steady);
        let Message { id, body, .. } = message;
        if self.tries.is_over() {
            let gone = outbox::dropped(&self.parts.store, &self.sink.id, &id).await;
            return is_written(&gone);
        }
        if !self.tries.is_due(steady) {
            return false;
        }
        let text = body::sent(self.sink.kind, body.clone(), now);
        let age_ms = self.tries.age_ms(steady);
        match self.sink.deliver(&id, text).await {
            Ok(()) => {
                self.nothing_fails();
                self.tries.end();
                if self.sink.kind == Kind::Alertmanager {
                    self.parts.standing.told(&self.sink.id, &body, Instant::now());
                }
                is_written(&outbox::delivered(&self.parts.store, &self.sink.id, &id).await)
            }
            Err(SinkError::Unfit(code)) if self.tries.is_dropped(code, age_ms) => {
                tracing::error!(
                    receiver = self.sink.name,
                    delivery = id,
                    "a message of alerts is dropped: the receiver will not take it, HTTP {code}"
                );
                let text = format!(
                    "{}: will not take a message of alerts (HTTP {code}), which is dropped; see its log and the daemon's",
                    self.sink.name
                );
                self.parts
                    .health
                    .raise_of("alert_sink_failing", &self.sink.name, text);
                self.dropped_at = Some(Instant::now());
                self.tries.end();
                // The next one need not wait.
                is_written(&outbox::dropped(&self.parts.store, &self.sink.id, &id).await)
            }
            Err(e) => {
                tracing::info!(receiver = self.sink.name, error = %e, "an alert was not taken; it goes again");
                if age_ms > FAILING_MS {
                    let text = format!("{}: {e}", self.sink.name);
                    self.parts
                        .health
                        .raise_of("alert_sink_failing", &self.sink.name, text);
                }
                let next_at = clock::now_ms().saturating_add(self.tries.fail(clock::steady()));
                is_written(&outbox::failed(&self.parts.store, &self.sink.id, &id, next_at).await);
                false
            }
        }
    }

    /// The receiver takes what comes. That it did not take one is said for a while all the same.
    fn nothing_fails(&mut self) {
        if self.dropped_at.is_none_or(|at| at.elapsed() >= DROPPED) {
            self.dropped_at = None;
            self.parts.health.clear_of("alert_sink_failing", &self.sink.name);
        }
    }

    /// The same of the only gateway: of several each does so for itself.
    pub(super) async fn alone_past_the_store(&mut self) {
        if self.parts.instance.is_none() {
            self.past_the_store().await;
        }
    }

    /// The store that fails cannot hold the alert that it does.
    pub(super) async fn past_the_store(&mut self) {
        let trouble = self
            .parts
            .health
            .troubles()
            .into_iter()
            .find(|t| t.code == UNWRITABLE);
        let wait = self.parts.config.group_wait.duration();
        match (trouble, self.direct.since.clone()) {
            (Some(trouble), None) => {
                self.direct.since = Some(Failing {
                    since: Instant::now(),
                    since_ms: clock::now_ms(),
                    trouble,
                });
                if self.parts.instance.is_some() {
                    // Another gateway may have told since what went on and what ended.
                    let now = Instant::now();
                    self.parts.standing.forget_older(&self.sink.id, 2 * AGAIN, now);
                }
            }
            (Some(_), Some(failing)) => {
                let due = match self.direct.told_at {
                    None => failing.since.elapsed() >= wait,
                    Some(at) => self.sink.kind == Kind::Alertmanager && at.elapsed() >= AGAIN,
                };
                if due && self.send(&failing, Status::Firing).await {
                    self.direct.told_at = Some(Instant::now());
                }
            }
            (None, Some(failing)) => {
                if self.direct.told_at.is_none() || self.send(&failing, Status::Resolved).await {
                    self.direct = Direct::default();
                }
            }
            (None, None) => {}
        }
    }

    /// Whether the store has failed when it was last looked.
    pub(super) fn is_past_the_store(&self) -> bool {
        self.direct.since.is_some()
    }

    async fn send(&self, failing: &Failing, status: Status) -> bool {
        let now = clock::now_ms();
        let instance = self.parts.instance.as_deref().unwrap_or_default();
        let mut alert = own::alert(&failing.trouble, instance, failing.since_ms);
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
        let text = body::sent(self.sink.kind, text, now);
        self.sink.deliver(&id, text).await.is_ok()
    }

    /// An Alertmanager is told again what goes on: by the store or, while that cannot be read, as it was last told.
    async fn again(&mut self) {
        if !self.is_to_repeat() {
            return;
        }
        match outbox::standing(&self.parts.store, &self.sink.id).await {
            Ok(alerts) => {
                let text = body::alertmanager(&self.site, &alerts, Status::Firing, clock::now_ms());
                self.parts
                    .standing
                    .known(&self.sink.id, &text.to_string(), Instant::now());
            }
            Err(e) => tracing::debug!(error = %e, "what goes on cannot be read; it is told as it was"),
        }
        self.repeat().await;
    }

    /// The same as it was last told.
    pub(super) async fn again_as_told(&mut self) {
        if self.is_to_repeat() {
            self.repeat().await;
        }
    }

    fn is_to_repeat(&self) -> bool {
        self.sink.kind == Kind::Alertmanager && Instant::now() >= self.again_at
    }

    async fn repeat(&mut self) {
        self.again_at = Instant::now() + AGAIN;
        for text in self.parts.standing.messages(&self.sink.id) {
            let text = body::sent(self.sink.kind, text, clock::now_ms());
            if let Err(e) = self.sink.deliver("again", text).await {
                tracing::debug!(receiver = self.sink.name, error = %e, "what goes on was not taken again");
                return;
            }
        }
    }
}

/// Whether the store knows what became of a message; while it does not, no more than that is tried again.
fn is_written(stored: &Result<(), StoreError>) -> bool {
    if let Err(e) = stored {
        tracing::debug!(error = %e, "what became of an alert cannot be written");
    }
    stored.is_ok()
}

#[cfg(test)]
mod tests;
