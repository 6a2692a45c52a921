//! The running agent: measures on schedule, reports, follows what the gateway answers, renews its certificate.

mod agent;
mod answer;
mod beat;
mod certificate;
mod clock;
mod peers;
mod reload;

use std::time::Duration;

pub use agent::{Agent, Reread, RunError, Signal};
pub use answer::{Effects, effects};
pub use clock::{Wall, unix_seconds};

/// Bounds that the protocol gives; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Shortest interval that a gateway may ask for.
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
    /// Time for the last heartbeat on a clean stop.
    pub farewell: Duration,
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
            farewell: Duration::from_secs(3),
        }
    }
}
