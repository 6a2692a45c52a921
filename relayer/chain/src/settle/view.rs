//! What the machine has seen of the chain since its start. Never stored: it is learnt again from the next blocks.

use std::collections::{BTreeMap, VecDeque};

use super::action::{Action, Alarm};
use super::types::{Condition, Config, EndpointId};

/// Intervals kept for the block time.
const SAMPLES: usize = 16;
/// Fewer intervals say nothing: the first blocks of a chain, and the first after a halt, follow each other at once.
const MIN_SAMPLES: usize = 3;
/// No chain makes blocks faster for long; without a bound a burst would give a transaction a very long life.
const MIN_BLOCK_MS: u64 = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The newest height of each endpoint that answers.
    pub(super) heads: BTreeMap<EndpointId, u64>,
    /// The endpoint's height from which on it gets the outstanding bytes again.
    pub(super) next_send: BTreeMap<EndpointId, u64>,
    /// After `expected < got`: read the account again from this height on.
    pub(super) reread_at: Option<u64>,
    /// The account answer that showed the sequence used.
    pub(super) consumed_at: Option<u64>,
    /// Whether the present alarm about an unknown account was raised.
    pub(super) account_unknown: bool,
    /// The verdict alarmed last for the outstanding transaction.
    pub(super) alarmed: BTreeMap<EndpointId, u32>,
    top: Option<Top>,
    started_ms: Option<u64>,
    intervals: VecDeque<u64>,
    halted: bool,
    off: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Top {
    height: u64,
    block_ms: u64,
    /// Our clock when it was first seen.
    seen_ms: u64,
}

impl View {
    /// Takes a block in; whether it is higher than all before.
    pub(super) fn head(
        &mut self,
        config: &Config,
        now_ms: u64,
        endpoint: EndpointId,
        height: u64,
        block_ms: u64,
        out: &mut Vec<Action>,
    ) -> bool {
        self.heads.insert(endpoint, height);
        if let Some(top) = self.top {
            if height <= top.height {
                return false;
            }
            let blocks = height - top.height;
            if let Some(per_block) = block_ms.saturating_sub(top.block_ms).checked_div(blocks) {
                let times = usize::try_from(blocks).unwrap_or(SAMPLES).min(SAMPLES);
                self.intervals.extend(std::iter::repeat_n(per_block, times));
                let surplus = self.intervals.len().saturating_sub(SAMPLES);
                self.intervals.drain(..surplus);
            }
        }
        self.top = Some(Top {
            height,
            block_ms,
            seen_ms: now_ms,
        });
        if std::mem::take(&mut self.halted) {
            out.push(Action::Alarm(Alarm::Resumed { height }));
        }
        let off = now_ms.abs_diff(block_ms) > config.max_block_age_ms;
        if off && !self.off {
            out.push(Action::Alarm(Alarm::BlockTimeOff {
                block_time_ms: block_ms,
                now_ms,
            }));
        }
        self.off = off;
        true
    }

    /// Notices a halt.
    pub(super) fn tick(&mut self, config: &Config, now_ms: u64, out: &mut Vec<Action>) {
        let since = self
            .top
            .map_or(*self.started_ms.get_or_insert(now_ms), |t| t.seen_ms);
        if !self.halted && now_ms.saturating_sub(since) >= config.halt_after_ms {
            self.halted = true;
            out.push(Action::Alarm(Alarm::Halted {
                height: self.top_height(),
            }));
        }
    }

    pub(super) fn top_height(&self) -> Option<u64> {
        self.top.map(|t| t.height)
    }

    /// Whether signing and sending are allowed.
    pub(super) fn is_live(&self) -> bool {
        self.condition() == Condition::Live
    }

    pub(super) fn is_halted(&self) -> bool {
        self.halted
    }

    pub(super) fn condition(&self) -> Condition {
        match self.top {
            _ if self.halted => Condition::Halted,
            None => Condition::Starting,
            Some(_) if self.off => Condition::CatchingUp,
            Some(_) => Condition::Live,
        }
    }

    /// T for a transaction signed now: top + ceil(lifetime / block time), at least the minimum.
    ///
    /// The block time is the median of the last intervals: a halt is one long interval among many.
    pub(super) fn timeout_height(&self, config: &Config) -> Option<u64> {
        let mut sorted: Vec<u64> = self.intervals.iter().copied().collect();
        sorted.sort_unstable();
        let median = sorted
            .get(sorted.len() / 2)
            .copied()
            .filter(|_| sorted.len() >= MIN_SAMPLES);
        let block_ms = median.unwrap_or(config.assumed_block_ms).max(MIN_BLOCK_MS);
        let blocks = config
            .lifetime_ms
            .div_ceil(block_ms)
            .max(config.min_lifetime_blocks);
        Some(self.top?.height.saturating_add(blocks))
    }

    /// Forgets what concerned a transaction that has ended or was not there yet.
    pub(super) fn forget_transaction(&mut self) {
        self.next_send.clear();
        self.alarmed.clear();
        self.reread_at = None;
        self.consumed_at = None;
    }
}
