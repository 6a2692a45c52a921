//! What could not be undone when its task ended is tried again, until it is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;

use super::host::Host;
use super::ledger::Ledger;
use super::steward::Steward;

/// Before the first try.
const FIRST: Duration = Duration::from_secs(5);
/// Between two tries at most.
const LONGEST: Duration = Duration::from_secs(3600);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after what nobody has any more.
#[derive(Debug)]
pub struct Leftovers {
    first: Duration,
    tries: BTreeMap<TaskId, Try>,
}

#[derive(Debug)]
struct Try {
    failed: u32,
    next: Instant,
}

impl Default for Leftovers {
    fn default() -> Self {
        Self::after(FIRST)
    }
}

impl Leftovers {
    /// First tries come so long after something was found.
    #[must_use]
    pub fn after(first: Duration) -> Self {
        Self {
            first,
            tries: BTreeMap::new(),
        }
    }

    /// Twice as long after each failure.
    fn pause(&self, failed: u32) -> Duration {
        let factor = 2u32.checked_pow(failed).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(LONGEST)
    }
}

impl Steward for Leftovers {
    fn name(&self) -> &'static str {
        "leftovers"
    }

    fn look(&mut self, host: &Host, ledger: &Arc<Ledger>) -> Duration {
        let residues = ledger.residues();
        self.tries
            .retain(|id, _| residues.iter().any(|r| r.task_id == *id));
        for residue in residues {
            let id = &residue.task_id;
            let now = Instant::now();
            let failed = match self.tries.get(id) {
                Some(t) if now < t.next => continue,
                Some(t) => t.failed,
                None => {
                    let next = now.checked_add(self.pause(0)).unwrap_or(now);
                    self.tries.insert(id.clone(), Try { failed: 0, next });
                    continue;
                }
            };
            let failed = match ledger.retry(host, &residue) {
                Ok(undone) if undone.stuck.is_empty() => {
                    tracing::info!(task = %id, "what was left of a task is gone");
                    continue;
                }
                Ok(undone) => {
                    let left = undone.stuck.join("; ");
                    tracing::warn!(task = %id, "what is left of a task cannot be taken away: {left}");
                    failed.saturating_add(1)
                }
                // A task works for the same owner: its turn is soon over.
                Err(e) if e.code == Code::ResourceBusy => failed,
                Err(e) => {
                    tracing::warn!(task = %id, "what is left of a task cannot be looked at: {e}");
                    failed.saturating_add(1)
                }
            };
            let next = Instant::now().checked_add(self.pause(failed)).unwrap_or(now);
            self.tries.insert(id.clone(), Try { failed, next });
        }
        LOOK.min(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let all = Leftovers::default();
        let seconds: Vec<u64> = (0..5).map(|n| all.pause(n).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80]);
        assert_eq!(all.pause(40), LONGEST);
    }
}
