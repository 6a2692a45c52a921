//! The whole agent (TLS, HTTP, certificates, counter on disk) against the test gateway, a day in simulated time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;
mod memory;

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use memory::resident;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use virtengine_node_agent::clock::instant;
use virtengine_node_agent::probe::host::Load;
use virtengine_node_agent::probe::memory::Memory;
use virtengine_node_agent::run::{Agent, Signal, Timing};
use virtengine_node_agent::sample::{Category, Collector, Reading, Sampler, Sources};
use virtengine_node_agent::state::{Outages, StateDir};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// As the gateway answers; jitter makes it shorter.
const INTERVAL: Duration = Duration::from_secs(30);
/// A timeout of a request, and sampling before a heartbeat.
const SLACK: Duration = Duration::from_secs(5);

/// A machine whose load follows a pattern; what it says rests on how often it was asked alone.
struct Machine(Category, u64);

impl Collector for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }
    fn category(&self) -> Category {
        self.0
    }
    fn collect(&mut self, _: Instant) -> Vec<Reading> {
        self.1 += 1;
        let n = self.1;
        match self.0 {
            Category::Capacity => vec![
                Reading::Cores(Some(8)),
                Reading::Memory(Some(Memory {
                    total: 64 << 30,
                    available: 32 << 30,
                })),
            ],
            Category::HealthStatus => {
                let one = n % 8 * 1_000_000;
                vec![
                    Reading::Load(Some(Load {
                        one,
                        five: one,
                        fifteen: one,
                    })),
                    Reading::Uptime(Some(n)),
                ]
            }
            Category::Utilization => vec![Reading::Cpu(Some(u8::try_from(n % 101).unwrap()))],
            // Hot for a while: changes of health are sent early.
            _ => vec![Reading::Temperature(Some(if n.is_multiple_of(97) {
                99
            } else {
                50
            }))],
        }
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nobody listens.
    Refused,
    /// Requests are taken and not answered.
    Hanging,
    /// The agent's clock is off by so many seconds.
    ClockOff(i64),
    /// The gateway answers the next heartbeats with HTTP errors.
    Overload,
}

/// Moments that are no agent's fault, in simulated time.
#[derive(Debug, Clone, Copy)]
struct Disturbed {
    what: Fault,
    from: Instant,
    until: Instant,
}

/// The simulated site, and what went wrong on it.
struct Site {
    all: gateway::Site,
    disturbed: Vec<Disturbed>,
}

impl Deref for Site {
    type Target = gateway::Site;
    fn deref(&self) -> &gateway::Site {
        &self.all
    }
}

fn sampler(_: &Sources) -> Sampler {
    let categories = [
        Category::Capacity,
        Category::HealthStatus,
        Category::Utilization,
        Category::Temperature,
    ];
    Sampler::inline(
        categories
            .map(|c| Box::new(Machine(c, 0)) as Box<dyn Collector>)
            .into(),
    )
}

impl Site {
    async fn start() -> Self {
        let all = gateway::Site::start(sampler).await;
        all.gateway.behaviour().certificate_life = 3 * HOUR;
        all.gateway.behaviour().forgets = true;
        Self {
            all,
            disturbed: Vec::new(),
        }
    }

    /// Something goes wrong for a while.
    async fn disturb(&mut self, what: Fault, lasts: Duration) {
        let from = instant();
        self.set(what, true);
        tokio::time::sleep(lasts).await;
        self.set(what, false);
        let until = instant();
        self.disturbed.push(Disturbed { what, from, until });
    }

    fn set(&self, fault: Fault, on: bool) {
        match fault {
            Fault::Refused => self.down(on),
            Fault::Hanging => self.gateway.behaviour().hang = on,
            Fault::ClockOff(seconds) => self.skew.store(if on { seconds } else { 0 }, Ordering::Relaxed),
            Fault::Overload if on => self.gateway.behaviour().http_errors.extend([503, 429, 503]),
            Fault::Overload => {}
        }
    }

    fn down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
        if let Some(wire) = self.wire.lock().unwrap().take().filter(|_| down) {
            wire.abort();
        }
    }

    /// Longest time between two accepted heartbeats that nothing explains, and the longest after a disturbance.
    fn judge(&self, end: Instant) {
        let mut arrived = self.gateway.seen().arrived.clone();
        arrived.push(end);
        for pair in arrived.windows(2) {
            let (last, next) = (pair[0], pair[1]);
            let during = self
                .disturbed
                .iter()
                .rev()
                .find(|d| d.from < next && d.until > last);
            let (allowed, since) = match during {
                None => (INTERVAL + SLACK, last),
                // A refusal waits for its interval, a failure at most for the bound of the backoff.
                Some(d) => (Timing::default().backoff_longest + SLACK, d.until.max(last)),
            };
            let gap = next.saturating_duration_since(since);
            let why = during.map(|d| d.what);
            assert!(gap <= allowed, "no heartbeat for {gap:?} after {why:?}");
        }
    }

    /// Longest time between two heartbeats that came, while the agent's clock was off and each was refused for it.
    fn judge_wrong_clocks(&self) {
        let asked = self.gateway.seen().asked.clone();
        let off = |d: &&Disturbed| matches!(d.what, Fault::ClockOff(_));
        let mut refused = 0;
        for d in self.disturbed.iter().filter(off) {
            let meanwhile = asked.iter().filter(|at| (d.from..d.until).contains(*at));
            let moments: Vec<Instant> = [d.from]
                .into_iter()
                .chain(meanwhile.copied())
                .chain([d.until])
                .collect();
            refused += moments.len() - 2;
            for pair in moments.windows(2) {
                let gap = pair[1] - pair[0];
                assert!(gap <= INTERVAL + SLACK, "silent for {gap:?} during {:?}", d.what);
            }
        }
        assert!(refused > 50, "{refused}");
    }
}

/// A disk that takes nothing: no byte can be written beyond the limit, into whatever file.
fn full_disk(full: bool) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let current = if full { Some(0) } else { maximum };
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_day_of_outages_renewals_clock_jumps_and_a_full_disk_leaves_no_gap_and_no_growth() {
    // What cannot be written is then an error, as with a full disk, and no signal that kills.
    let _ignored = signal(SignalKind::from_raw(25)).unwrap();
    let mut site = Site::start().await;
    let config = site.registered().await;
    let agent = Agent::new(config, site.world.clone()).unwrap();
    let (stop, signals) = mpsc::channel(1);
    let running = tokio::spawn(agent.run(signals));
    let start = instant();
    let mut warm = 0;
    for hour in 0..24u32 {
        tokio::time::sleep_until((start + HOUR * hour + 7 * MINUTE).into()).await;
        let minutes = MINUTE * (hour % 5 * 3 + 1);
        let fault = match hour % 6 {
            0 => Fault::Refused,
            1 => Fault::Hanging,
            2 => Fault::ClockOff(600),
            3 => Fault::ClockOff(-600),
            4 => Fault::Overload,
            _ => {
                // No disturbance: heartbeats must go on meanwhile.
                full_disk(true);
                tokio::time::sleep(15 * MINUTE).await;
                full_disk(false);
                continue;
            }
        };
        site.disturb(fault, minutes).await;
        if hour == 10 {
            // Longer than the certificate lives.
            site.disturb(Fault::Refused, 4 * HOUR).await;
        }
        if hour == 3 {
            warm = resident();
        }
    }
    tokio::time::sleep_until((start + 24 * HOUR).into()).await;
    let end = instant();
    let grown = resident().saturating_sub(warm);
    site.judge(end);
    site.judge_wrong_clocks();
    stop.send(Signal::Stop).await.unwrap();
    running.await.unwrap();
    let seen = site.gateway.seen();
    assert!(seen.arrived.len() > 2000, "{}", seen.arrived.len());
    assert!(
        seen.renewals >= 5 && seen.recoveries >= 1,
        "{} {}",
        seen.renewals,
        seen.recoveries
    );
    // Refused for its clock, and for nothing else: no number was used twice.
    assert!(
        seen.refusals.iter().all(|r| r.contains("timestamp")),
        "{:?}",
        seen.refusals.last()
    );
    assert!(seen.sequences.windows(2).all(|w| w[0] < w[1]));
    assert!(grown < 2048, "grew by {grown} KiB");
    let outages = Outages::load(&StateDir::new(&site.home.path("state")));
    assert!(outages.iter().count() >= 8 && outages.iter().all(|o| o.until.is_some()));
}
