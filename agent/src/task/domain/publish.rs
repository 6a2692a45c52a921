use std::collections::BTreeMap;

use hpc_schema::task::SliceSlot;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::State;
use crate::files::{Durability, Replace, write};
use crate::task::effect::Effect;
use crate::task::journal::Story;
use crate::task::journal::lock;
use crate::task::ledger::Holding;

/// Kind of owners that have slots.
const SLICE: &str = "slice";

/// What completed tasks have left on the host, and slots that others could not bring back, for the heartbeat and for
/// people; no secret is in it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Each thing that is held.
    pub holdings: Vec<Held>,
    /// What runs, whether its task has ended, ends it, or has failed to; none in a file of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<Running>>,
}

/// A machine that runs, or a user that may log in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Running {
    /// `vm`, `slice`, `user`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The task that made it.
    pub task_id: String,
    /// The allocation that a user is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<String>,
}

/// What runs by a task.
pub(in crate::task) fn running(story: &Story) -> Option<Running> {
    let owner = story.owner.as_ref()?;
    let runs = |e: &Effect| matches!(e, Effect::Machine(_) | Effect::Domain(_) | Effect::User(_));
    let some = story.steps.iter().any(|s| s.remains() && runs(&s.effect));
    (some && !story.released).then(|| Running {
        kind: owner.kind().to_owned(),
        name: owner.name().to_owned(),
        task_id: story.task.task_id.to_string(),
        allocation_id: story
            .facts
            .get("allocation_id")
            .and_then(Value::as_str)
            .map(str::to_owned),
    })
}

/// One thing that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What it is: `vm`, `slice`, `alloc`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The task that made it.
    pub task_id: String,
    /// UNIX seconds.
    pub since: u64,
    /// What its handler notes for others: facts whose names begin with `public.`, without that.
    pub facts: BTreeMap<String, Value>,
}

impl From<Holding> for Held {
    fn from(h: Holding) -> Self {
        let public = |(name, value): (String, Value)| Some((name.strip_prefix("public.")?.to_owned(), value));
        Self {
            kind: h.owner.kind().to_owned(),
            name: h.owner.name().to_owned(),
            task_id: h.task_id.to_string(),
            since: h.since,
            facts: h.facts.into_iter().filter_map(public).collect(),
        }
    }
}

/// What a task has left that has no owner any more, as something that is held: nobody can have it before it is proven
/// clean. None if it has left no slot.
fn unproven(story: &Story) -> Option<Held> {
    let owner = story.owner.as_ref().filter(|o| o.kind() == SLICE)?;
    if !story.is_residue() || story.holds().is_some() {
        return None;
    }
    let slots = unproven_slots(story);
    let public =
        |(name, value): (&String, &Value)| Some((name.strip_prefix("public.")?.to_owned(), value.clone()));
    let mut facts: BTreeMap<String, Value> = story.facts.iter().filter_map(public).collect();
    facts.insert("unproven_slots".to_owned(), slots.into());
    (slots > 0).then(|| Held {
        kind: owner.kind().to_owned(),
        name: owner.name().to_owned(),
        task_id: story.task.task_id.to_string(),
        since: story.ended.as_ref().map_or(story.taken_at, |e| e.finished_at),
        facts,
    })
}

/// Slots of which something is left.
fn unproven_slots(story: &Story) -> usize {
    let left: Vec<&Effect> = story
        .steps
        .iter()
        .filter(|s| s.remains())
        .map(|s| &s.effect)
        .collect();
    let slots = story
        .facts
        .get("slots")
        .cloned()
        .and_then(|s| serde_json::from_value(s).ok());
    // A domain has all of them; without the list each lease is one.
    let Some(slots): Option<Vec<SliceSlot>> = slots else {
        return left.iter().filter(|e| matches!(e, Effect::Lease(_))).count();
    };
    let of = |slot: &SliceSlot, effect: &Effect| match effect {
        Effect::Domain(_) => true,
        Effect::Lease(lease) => lease.resource == format!("slot/{}", slot.slot_id),
        Effect::Disk(disk) => disk.device == slot.nvme_device,
        Effect::Passthrough(function) => slot.functions().any(|f| *f == function.address),
        _ => false,
    };
    slots
        .iter()
        .filter(|slot| left.iter().any(|e| of(slot, e)))
        .count()
}

impl State {
    /// Writes what is held, if it has changed.
    pub(super) fn publish(&mut self) {
        let journals = self.ledger.all();
        let left = journals.iter().filter_map(|j| unproven(lock(j).story()));
        let mut runs: Vec<_> = journals.iter().filter_map(|j| running(lock(j).story())).collect();
        runs.sort_unstable();
        runs.dedup_by(|a, b| (&a.kind, &a.name) == (&b.kind, &b.name));
        let holdings = Holdings {
            running: Some(runs),
            holdings: self
                .ledger
                .held("")
                .into_iter()
                .map(Held::from)
                .chain(left)
                .collect(),
        };
        let Ok(bytes) = serde_json::to_vec_pretty(&holdings) else {
            return;
        };
        if self.published.as_ref() == Some(&bytes) {
            return;
        }
        let path = self.host.dir.holdings();
        match write(&path, &bytes, 0o644, Replace::Yes, Durability::Atomic) {
            Ok(()) => self.published = Some(bytes),
            Err(e) => tracing::warn!("{e}"),
        }
    }
}
