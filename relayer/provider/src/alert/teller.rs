//! What a receiver is told, message by message.

use std::time::Duration;

use tokio::time::Instant;

use super::body::{self, Site};
use super::group::{Group, Status};
use super::outbox::{self, Message};
use super::own::{self, UNWRITABLE};
use super::parts::Parts;
use super::sink::{Kind, Sink, SinkError};
use crate::clock;
use crate::ops::Trouble;

/// How often an Alertmanager is told again what goes on: it forgets with a restart.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest pause between two tries of a delivery.
const MOST_PAUSE_MS: u64 = 300_000;
/// A receiver that has not taken a message for so long is a trouble itself.
const FAILING_MS: u64 = 600_000;
/// A message that its receiver calls unfit so often is dropped, for the others wait behind it.
const MOST_UNFIT: u32 = 6;
/// With this status it has to be older than [`FAILING_MS`] too: it may be the receiver's own passing trouble, such as a
/// secret that is being changed.
const MAY_PASS: u16 = 400;
/// That one was dropped is a trouble for so long.
const DROPPED: Duration = Duration::from_secs(600);

/// One receiver, and what it is told.
pub(super) struct Teller {
    parts: Parts,
    sink: Sink,
    site: Site,
    direct: Direct,
    again_at: Instant,
    /// The message that was called unfit last, and how often.
    unfit: (String, u32),
    dropped_at: Option<Instant>,
}

/// What a receiver is told past the store, while that fails.
#[derive(Debug, Default)]
struct Direct {
    since: Option<(Instant, Trouble)>,
    told: bool,
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
            unfit: (String::new(), 0),
            dropped_at: None,
        }
    }

    /// Delivers what there is; whether there may be more.
    pub(super) async fn turn(&mut self) -> bool {
        self.alone_past_the_store().await;
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
                // Whatever it was sent it has taken, or that was dropped.
                self.nothing_fails();
                self.again().await;
                false
            }
            Err(e) => {
                tracing::debug!(error = %e, "alerts cannot be read");
                false
            }
        }
    }

    async fn deliver(&mut self, message: Message) -> bool {
        let now = clock::now_ms();
        if message.next_at > now {
            return false;
        }
        let Message { id, body, .. } = message;
        let sent = self
            .sink
            .deliver(&id, body::sent(self.sink.kind, body, now))
            .await;
        let stored = match &sent {
            Ok(()) => {
                self.nothing_fails();
                outbox::delivered(&self.parts.store, &self.sink.id, &id).await
            }
            Err(SinkError::Unfit(code))
                if self.is_dropped(&id, *code, now.saturating_sub(message.created_at)) =>
            {
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
                let gone = outbox::dropped(&self.parts.store, &self.sink.id, &id).await;
                // The next one need not wait.
                return gone.is_ok();
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

    /// The receiver takes what comes. That it did not take one is said for a while all the same.
    fn nothing_fails(&mut self) {
        if self.dropped_at.is_none_or(|at| at.elapsed() >= DROPPED) {
            self.dropped_at = None;
            self.parts.health.clear_of("alert_sink_failing", &self.sink.name);
        }
    }

    /// Takes in that a message was called unfit; whether that is once too often.
    fn is_dropped(&mut self, id: &str, code: u16, age_ms: u64) -> bool {
        let (of, times) = &mut self.unfit;
        if of.as_str() != id {
            id.clone_into(of);
            *times = 0;
        }
        *times = times.saturating_add(1);
        is_too_often(*times, code, age_ms)
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
        let text = body::sent(self.sink.kind, text, now);
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
            let now = clock::now_ms();
            let text = body::alertmanager(&self.site, part, Status::Firing, now).to_string();
            let text = body::sent(self.sink.kind, text, now);
            if let Err(e) = self.sink.deliver("again", text).await {
                tracing::debug!(receiver = self.sink.name, error = %e, "what goes on was not taken again");
                return;
            }
        }
    }
}

fn is_too_often(times: u32, code: u16, age_ms: u64) -> bool {
    times >= MOST_UNFIT && (code != MAY_PASS || age_ms > FAILING_MS)
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
    fn an_unfit_message_is_dropped_at_the_sixth_time_and_one_of_http_400_not_before_ten_minutes() {
        for code in [413, 422] {
            assert!(!is_too_often(5, code, u64::MAX) && is_too_often(6, code, 0));
        }
        assert!(!is_too_often(20, 400, FAILING_MS));
        assert!(is_too_often(6, 400, FAILING_MS + 1));
        assert!(!is_too_often(5, 400, u64::MAX));
    }

    #[test]
    fn pauses_grow_to_five_minutes_and_a_quarter() {
        let pauses: Vec<u64> = (0..40).map(|n| pause_ms(n, "ab")).collect();
        assert!(
            pauses.is_sorted() && pauses[0] < 1_300 && pauses[39] <= 375_000,
            "{pauses:?}"
        );
    }
}
