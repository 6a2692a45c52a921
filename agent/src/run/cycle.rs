//! The agent's loop: what is due next, until it is told to stop.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::Agent;
use crate::clock::instant;
use crate::patient::within;
use crate::random;
use crate::sequence::Sequence;
use crate::state::Lock;

/// For what is written last, once the gateway has been told.
const LAST_WORDS: Duration = Duration::from_millis(700);
/// For all of the end; the log's last lines come after it.
const FAREWELL: Duration = Duration::from_millis(4500);

/// What the process is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, SIGINT: say goodbye and end.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Why the agent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to by a signal.
    Told,
    /// The provider ordered it.
    Ordered,
    /// Another version is to go on.
    Relaunch,
    /// This version did not prove itself.
    Unproven,
}

impl Ended {
    /// No other version goes on at once.
    fn is_for_good(self) -> bool {
        matches!(self, Self::Told | Self::Ordered)
    }
}

impl Agent {
    /// Runs until [`Signal::Stop`], or an order ends it. Whatever the gateway does, it waits and tries again.
    pub async fn run(mut self, mut signals: mpsc::Receiver<Signal>) -> Ended {
        tracing::info!(
            node = %self.registration.node_id,
            cluster = %self.registration.cluster_id,
            gateway = %self.client.endpoint(),
            "started"
        );
        self.peers.answer(self.config.responder).await;
        tell_service_manager(&[sd_notify::NotifyState::Ready]);
        let watchdog = sd_notify::watchdog_enabled().map(|d| d / 2);
        let mut next_beat = instant();
        let mut next_ping = instant();
        let mut waited = false;
        // The last turn was a heartbeat.
        let mut reported = false;
        let ended = loop {
            let now = instant();
            if let Some(period) = watchdog
                && now >= next_ping
            {
                tell_service_manager(&[sd_notify::NotifyState::Watchdog]);
                next_ping = later(now, period);
            }
            self.kept();
            if std::mem::take(&mut self.begins_anew) {
                next_beat = self.early(next_beat);
            }
            self.take_reread();
            self.take_round();
            self.look_at_hardware();
            self.step_orders();
            // Where it has brought nothing new, what was judged for it holds until the loop has waited.
            if !std::mem::take(&mut reported) || self.unjudged || self.wish.is_some() {
                self.unjudged = false;
                let (health, findings) = self.judge();
                if std::mem::take(&mut waited) && now < next_beat && self.changed(health, &findings) {
                    next_beat = self.early(next_beat);
                }
                self.step_service(&findings);
                self.show(health, findings);
            }
            if self.orders.stops() {
                tracing::warn!("the provider has ordered this agent to stop");
                break Ended::Ordered;
            }
            if self.orders.relaunches() {
                break Ended::Relaunch;
            }
            if self.trial.is_some_and(|until| now >= until) {
                tracing::error!(
                    "no gateway has accepted a heartbeat of this version: it gives way to the one before"
                );
                break Ended::Unproven;
            }
            if now >= next_beat {
                match self.beat_unless_stopped(&mut signals, watchdog).await {
                    Some(pause) => next_beat = later(instant(), pause),
                    None => break Ended::Told,
                }
                reported = true;
                continue;
            }
            let mut wake = self.plan_round(now, next_beat);
            if watchdog.is_some() {
                wake = wake.min(next_ping);
            }
            wake = self.rereading.again_at().map_or(wake, |at| wake.min(at));
            wake = self.service.again_at().map_or(wake, |at| wake.min(at));
            wake = self.orders.again_at().map_or(wake, |at| wake.min(at));
            wake = self.hardware.again_at().map_or(wake, |at| wake.min(at));
            wake = self.trial.map_or(wake, |until| wake.min(until));
            tokio::select! {
                biased;
                signal = signals.recv() => match signal {
                    Some(Signal::Reload) => self.reload(),
                    Some(Signal::Stop) | None => break Ended::Told,
                },
                Some((id, end)) = self.orders.ended() => self.order_ended(&id, end),
                Some(end) = self.service.ended() => self.slurm_told(end),
                () = self.sampler.round_read() => {}
                () = self.timer.until(wake) => {
                    // A heartbeat measures for itself what is due.
                    if instant() < next_beat {
                        match self.sample_unless_told(&mut signals).await {
                            Some(Signal::Reload) => self.reload(),
                            Some(Signal::Stop) => break Ended::Told,
                            None => {}
                        }
                    }
                }
            }
            waited = true;
        };
        if ended.is_for_good() {
            tell_service_manager(&[sd_notify::NotifyState::Stopping]);
        }
        Box::pin(self.farewell(ended)).await;
        ended
    }

    /// What is due; given up for what the service manager says meanwhile.
    async fn sample_unless_told(&mut self, signals: &mut mpsc::Receiver<Signal>) -> Option<Signal> {
        tokio::select! {
            biased;
            signal = signals.recv() => Some(signal.unwrap_or(Signal::Stop)),
            () = self.sample_due() => None,
        }
    }

    /// One heartbeat; none if told to stop meanwhile.
    async fn beat_unless_stopped(
        &mut self,
        signals: &mut mpsc::Receiver<Signal>,
        watchdog: Option<Duration>,
    ) -> Option<Duration> {
        let mut reload = false;
        let pause = {
            let mut beat = pin!(self.beat());
            // A gateway that does not answer may take longer than the service manager's patience.
            let ping = watchdog.unwrap_or(Duration::MAX);
            let mut next_ping = instant();
            loop {
                let wake = later(next_ping, ping);
                tokio::select! {
                    biased;
                    signal = signals.recv() => match signal {
                        Some(Signal::Reload) => reload = true,
                        Some(Signal::Stop) | None => return None,
                    },
                    pause = &mut beat => break pause,
                    () = tokio::time::sleep_until(wake.into()), if watchdog.is_some() => {
                        tell_service_manager(&[sd_notify::NotifyState::Watchdog]);
                        next_ping = instant();
                    }
                }
            }
        };
        if reload {
            self.reload();
        }
        Some(pause)
    }

    /// Last heartbeat, counter, status: within five seconds whatever hangs.
    async fn farewell(mut self, ended: Ended) {
        let limit = self.timing.farewell;
        let end = later(instant(), FAREWELL);
        self.disk.hurry();
        self.leaves = true;
        self.sampler.call_off();
        // Another version goes on at once: the node is not offline.
        if ended.is_for_good() && tokio::time::timeout(limit, self.say_goodbye()).await.is_err() {
            tracing::warn!("the gateway did not take the last heartbeat within {limit:?}");
        }
        // What is being written knows nothing of the end yet.
        self.sampler.attended(left(end).min(LAST_WORDS)).await;
        self.kept();
        self.status.stopped_at = Some(self.clock.seconds());
        self.save_status();
        let answers = self.sampler.attended(left(end).min(LAST_WORDS)).await;
        self.kept();
        if !answers {
            tracing::warn!("agent.state_dir does not answer: its last words are not kept");
        } else if let Err(why) = release(self.sequence, self.lock, left(end)) {
            tracing::warn!("the rest of the block of sequence numbers is skipped: {why}");
        }
        tracing::info!("stopped");
    }

    /// Brings the next heartbeat forward: there is news. At most one such heartbeat in the shortest interval.
    fn early(&mut self, planned: Instant) -> Instant {
        let now = instant();
        let earliest = self
            .last_early
            .map_or(now, |last| later(last, self.timing.shortest_interval));
        let at = later(now, self.timing.out_of_turn).max(earliest);
        if at >= planned {
            return planned;
        }
        self.out_of_turn = true;
        self.last_early = Some(at);
        at
    }

    /// At most a tenth earlier than agreed, so that a thousand nodes do not beat together.
    pub(super) fn jittered(pause: Duration) -> Duration {
        pause.saturating_sub(Self::spread(pause))
    }

    /// Up to a tenth of a pause, at random.
    pub(super) fn spread(pause: Duration) -> Duration {
        let tenth = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) / 10;
        Duration::from_millis(random::up_to(tenth))
    }
}

fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(instant())
}

/// Gives the rest of the block back, waiting for the disk for `limit` at most. What is written late is written under the
/// lock: by then another agent could have reserved numbers in the same place.
fn release(sequence: Sequence, lock: Lock, limit: Duration) -> Result<(), String> {
    let written = within(limit, move || {
        let written = sequence.release();
        drop(lock);
        written
    });
    let late = || format!("agent.state_dir has not answered within {limit:?}; look at its disk");
    written.ok_or_else(late)?.map_err(|e| e.to_string())
}

fn tell_service_manager(state: &[sd_notify::NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    sd_notify::notify(state).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateDir;

    #[test]
    fn the_rest_of_a_block_is_given_back_in_time_or_skipped_and_the_lock_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let begin = || {
            let mut sequence = Sequence::open(&state.sequence(), 5, 0).unwrap();
            let block = sequence.reservation().unwrap().make();
            sequence.reserved(block).unwrap();
            (sequence, Lock::take(&state).unwrap().unwrap())
        };
        let (mut sequence, lock) = begin();
        sequence.advance().unwrap();
        release(sequence, lock, FAREWELL).unwrap();
        let (mut sequence, lock) = begin();
        assert_eq!(sequence.advance().unwrap(), 2);
        // A reservation is out: nobody else may write.
        while sequence.reservation().is_none() {
            sequence.advance().unwrap();
        }
        let why = release(sequence, lock, FAREWELL).unwrap_err();
        assert!(why.contains("does not answer"), "{why}");
        assert!(!Lock::is_held(&state));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_has_one_budget() {
        let end = later(instant(), FAREWELL);
        let spent = crate::run::Timing::default().farewell + 2 * LAST_WORDS;
        tokio::time::advance(spent).await;
        assert!(
            left(end) >= Duration::from_millis(500),
            "for the sequence numbers"
        );
        tokio::time::advance(FAREWELL).await;
        assert_eq!(left(end), Duration::ZERO);
    }

    #[test]
    fn a_thousand_nodes_with_one_interval_do_not_beat_together() {
        let pause = Duration::from_secs(30);
        let all: Vec<Duration> = (0..1000).map(|_| Agent::jittered(pause)).collect();
        assert!(all.iter().all(|p| *p <= pause && *p >= pause - pause / 10));
        // Spread over the whole tenth, not bunched.
        let third = |n: u32| {
            let from = pause - pause / 10 + pause / 30 * n;
            all.iter()
                .filter(|p| **p >= from && **p < from + pause / 30)
                .count()
        };
        assert!(
            (0..3).all(|n| third(n) > 200),
            "{:?}",
            [third(0), third(1), third(2)]
        );
    }
}
