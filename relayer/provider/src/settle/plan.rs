//! Which reports go into the next transaction, and when: a pure function of what waits.
//!
//! Reports of a page travel together, because a page that is written is loaded whole anyway. `max_size` is
//! when the planner stops waiting, not a cap; the caps are the contract's batch limit and the bytes and gas
//! of a transaction. Then go the pages that are worth it, and those that would gain nothing by waiting, for no live node of
//! theirs is still to report; where that makes no batch of its own, the fullest as well, until it has `max_size` reports.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hpc_schema::id::ClusterId;
use hpc_schema::report::batch::ITEM_LEN;

use super::fit::ReportGas;

/// From so many reports on (of a page's 64) writing a page is worth it before its reports are due, and a transaction before
/// any is.
pub(super) const WORTH_WRITING: usize = 11;
/// A state that has lapsed already brings a report forward to this part of the interval at the earliest.
pub(super) const EARLIEST_PART: u64 = 4;
/// A state that would lapse within this time brings its report forward.
pub(super) const LAPSE_MARGIN_MS: u64 = 20_000;
/// A report that is brought forward waits so long for others: nodes come back together.
pub(super) const GATHER_MS: u64 = 1_000;
/// From a batch that is due to its block.
const INCLUSION_MS: u64 = 10_000;
/// Bytes of a transaction around its reports: message, signature, fee.
const TX_FRAME: u64 = 600;
/// Bytes around one page and one cluster, in base64.
const PAGE_FRAME: u64 = 100;

/// A report that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Cluster.
    pub cluster_id: ClusterId,
    /// Page on chain.
    pub page: u16,
    /// Slot in the page.
    pub slot: u8,
    /// Since when a report of this node waits, milliseconds.
    pub queued_at: u64,
    /// When the node's state on chain lapses without it, or has lapsed, milliseconds.
    pub lapses_at: Option<u64>,
    /// Live nodes of its page of which no report waits.
    pub absent: u16,
    /// The report's own time, UNIX seconds.
    pub time: u32,
    /// Bytes of the section that travels with it; 0 if none does.
    pub section_len: u32,
}

/// Bounds of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// With this many waiting nothing is waited for any longer.
    pub max_size: usize,
    /// The latest that a report waits, milliseconds.
    pub interval_ms: u64,
    /// The contract's cap of reports a message.
    pub batch_limit: usize,
    /// Cap of a transaction.
    pub max_tx_bytes: u64,
    /// Cap of a transaction.
    pub max_gas: u64,
    /// The most that is signed for its parts.
    pub gas: ReportGas,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing waits.
    Idle,
    /// Nothing is due before this time (milliseconds).
    Wait {
        /// When to ask again.
        until: u64,
    },
    /// Send these (indices into the input), in order of cluster, page and slot; never empty.
    Send(Vec<usize>),
}

struct Page {
    items: Vec<usize>,
    due: bool,
    /// No live node of it is still to report.
    complete: bool,
    oldest: u64,
}

/// Decides at `now` (milliseconds).
#[must_use]
pub fn plan(waiting: &[Waiting], limits: &Limits, now: u64) -> Decision {
    let Some(first_due) = waiting.iter().map(|w| due_at(w, limits)).min() else {
        return Decision::Idle;
    };
    let full = waiting.len() >= limits.max_size;
    if first_due > now && !full {
        return Decision::Wait { until: first_due };
    }
    let mut pages: BTreeMap<(&ClusterId, u16), Page> = BTreeMap::new();
    for (i, w) in waiting.iter().enumerate() {
        let page = pages.entry((&w.cluster_id, w.page)).or_insert(Page {
            items: Vec::new(),
            due: false,
            complete: true,
            oldest: u64::MAX,
        });
        page.items.push(i);
        page.due |= due_at(w, limits) <= now;
        page.complete &= w.absent == 0;
        page.oldest = page.oldest.min(w.queued_at);
    }
    let worth = WORTH_WRITING.min(limits.max_size);
    let (mut chosen, mut rest): (Vec<Page>, Vec<Page>) = pages
        .into_values()
        .partition(|p| p.due || p.items.len() >= worth || (full && p.complete));
    let mut reports: usize = chosen.iter().map(|p| p.items.len()).sum();
    // A transaction has its own price: one of few reports is none that closes a batch.
    if full && reports < worth {
        rest.sort_by_key(|p| (Reverse(p.items.len()), p.oldest));
        for page in rest {
            if reports >= limits.max_size {
                break;
            }
            reports = reports.saturating_add(page.items.len());
            chosen.push(page);
        }
    }
    // What is due first, so that caps never starve it.
    chosen.sort_by_key(|p| (!p.due, p.oldest));
    Decision::Send(fill(waiting, &chosen, limits))
}

fn due_at(w: &Waiting, limits: &Limits) -> u64 {
    let after = |wait: u64| w.queued_at.saturating_add(wait);
    let latest = after(limits.interval_ms);
    match w.lapses_at {
        None => latest,
        // What has lapsed a while sooner or later mends; a site that comes back has many of these.
        Some(lapse) if lapse <= w.queued_at => latest.min(after(limits.interval_ms / EARLIEST_PART)),
        Some(lapse) => {
            // Others are waited for as long as the state surely holds.
            let gathered = after(limits.interval_ms / EARLIEST_PART);
            let in_time = gathered.saturating_add(INCLUSION_MS) < lapse;
            let least = if in_time { gathered } else { after(GATHER_MS) };
            latest.min(lapse.saturating_sub(LAPSE_MARGIN_MS).max(least))
        }
    }
}

/// Takes pages whole while they fit; the first goes in part if it does not fit at all.
fn fill(waiting: &[Waiting], pages: &[Page], limits: &Limits) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    let (mut bytes, mut gas) = (TX_FRAME, limits.gas.tx);
    let (mut from, mut to) = (u32::MAX, 0u32);
    for page in pages {
        let mark = (taken.len(), bytes, gas, from, to);
        bytes += PAGE_FRAME;
        gas += limits.gas.page;
        let mut items = page.items.clone();
        items.sort_by_key(|i| waiting.get(*i).map(|w| w.queued_at));
        let (mut whole, mut sections) = (true, false);
        for i in items {
            let Some(w) = waiting.get(i) else { continue };
            let next_bytes = bytes + item_bytes(w);
            let mut next_gas = gas + limits.gas.of(w.section_len);
            if w.section_len > 0 && !sections {
                next_gas += limits.gas.section_page;
            }
            let (next_from, next_to) = (from.min(w.time), to.max(w.time));
            let fits = taken.len() < limits.batch_limit
                && next_bytes <= limits.max_tx_bytes
                && next_gas <= limits.max_gas
                // Times travel as 16 bits above the batch's earliest.
                && next_to - next_from <= u32::from(u16::MAX);
            if !fits && !taken.is_empty() {
                whole = false;
                break;
            }
            (bytes, gas, from, to) = (next_bytes, next_gas, next_from, next_to);
            sections |= w.section_len > 0;
            taken.push(i);
        }
        if !whole {
            if mark.0 > 0 {
                taken.truncate(mark.0);
                (bytes, gas, from, to) = (mark.1, mark.2, mark.3, mark.4);
                continue;
            }
            break;
        }
    }
    taken.sort_by_key(|i| waiting.get(*i).map(|w| (&w.cluster_id, w.page, w.slot)));
    taken
}

/// Base64 of the item, with its section.
fn item_bytes(w: &Waiting) -> u64 {
    let section = if w.section_len == 0 {
        0
    } else {
        u64::from(w.section_len) + 2
    };
    (u64::try_from(ITEM_LEN)
        .unwrap_or(u64::MAX)
        .saturating_add(section))
    .div_ceil(3)
        * 4
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
