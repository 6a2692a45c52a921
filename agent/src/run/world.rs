//! What the agent lives in: clocks, network, collectors. Tests put others in their place and run days in seconds.

use std::time::Duration;

use crate::clock::Clock;
use crate::sample::{Sampler, Sources, standard};
use crate::timer::Timer;
use crate::uplink::Dial;

/// Bounds that the protocol gives; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Shortest interval that a gateway may ask for; also between two heartbeats that are sent out of turn.
    pub shortest_interval: Duration,
    /// Longest interval that a gateway may ask for.
    pub longest_interval: Duration,
    /// Pause before a heartbeat that is sent out of turn.
    pub out_of_turn: Duration,
    /// First bound of the backoff after a failure.
    pub backoff_first: Duration,
    /// Longest bound of the backoff: also the longest gap after the gateway is back.
    pub backoff_longest: Duration,
    /// Longest pause after a refusal that only a person can mend.
    pub refused: Duration,
    /// How long after the preferred gateway has failed it is looked for again.
    pub fail_back: Duration,
    /// Time for the last heartbeat on a clean stop.
    pub farewell: Duration,
    /// Within this a new version must have a heartbeat accepted.
    pub trial: Duration,
    /// Between two looks at hardware that is not the one registered: what is late has appeared by then.
    pub hardware: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            shortest_interval: Duration::from_secs(10),
            longest_interval: Duration::from_secs(120),
            out_of_turn: Duration::from_secs(1),
            backoff_first: Duration::from_secs(1),
            backoff_longest: Duration::from_secs(30),
            refused: Duration::from_secs(60),
            fail_back: Duration::from_secs(120),
            farewell: Duration::from_millis(2500),
            trial: Duration::from_secs(600),
            hardware: Duration::from_secs(60),
        }
    }
}

/// Clocks, network and collectors of one agent.
#[derive(Debug, Clone)]
pub struct World {
    /// Bounds of waiting.
    pub timing: Timing,
    /// The wall clock.
    pub clock: Clock,
    /// The way to gateways.
    pub dial: Dial,
    /// Makes what the loop waits by.
    pub timer: fn() -> Timer,
    /// Makes the collectors.
    pub sampler: fn(&Sources) -> Sampler,
}

impl World {
    /// This machine.
    #[must_use]
    pub fn real(timing: Timing) -> Self {
        Self {
            timing,
            clock: Clock::system(),
            dial: Dial::tcp(),
            timer: Timer::kernel,
            sampler: |sources| Sampler::new(standard(sources)),
        }
    }
}
