use std::collections::{BTreeMap, BTreeSet};

use hpc_schema::id::TaskId;
use serde_json::Value;

use super::Ledger;
use crate::task::effect::{Effect, Seen, Trace};
use crate::task::failure::Failure;
use crate::task::host::Host;
use crate::task::journal::{Record, Shared, Step, Story, lock};
use crate::task::owner::Owner;
use crate::task::undo;

/// What a completed task has left on the host.
#[derive(Debug, Clone)]
pub struct Holding {
    /// Under which name.
    pub owner: Owner,
    /// By which task.
    pub task_id: TaskId,
    /// UNIX seconds at which the task ended.
    pub since: u64,
    /// What remains, with its place in the task's journal.
    pub effects: Vec<(usize, Effect, Option<Trace>)>,
    /// What the task, or who looks after it, noted of it.
    pub facts: BTreeMap<String, Value>,
}

impl Ledger {
    /// What is held, of every owner of this kind; all kinds for the empty word.
    #[must_use]
    pub fn held(&self, kind: &str) -> Vec<Holding> {
        let mut held: Vec<Holding> = self
            .all()
            .iter()
            .filter_map(|j| holding(lock(j).story()))
            .filter(|h| kind.is_empty() || h.owner.kind() == kind)
            .collect();
        held.sort_by(|a, b| (&a.owner, a.since, &a.task_id).cmp(&(&b.owner, b.since, &b.task_id)));
        held
    }

    /// Facts of what owners of this kind have, given back or not, and of what tasks are making once they have noted
    /// `admitted`.
    #[must_use]
    pub fn promised(&self, kind: &str, admitted: &str) -> Vec<BTreeMap<String, Value>> {
        let of = |j: &Shared| {
            let journal = lock(j);
            let story = journal.story();
            let counts = match story.ended {
                None => story.facts.contains_key(admitted),
                Some(_) => story.remains() && !story.released,
            };
            let is_kind = story.owner.as_ref().is_some_and(|o| o.kind() == kind);
            (counts && is_kind).then(|| story.facts.clone())
        };
        self.all().iter().filter_map(of).collect()
    }

    /// What this owner holds, newest first: mostly by one task.
    #[must_use]
    pub fn held_by(&self, owner: &Owner) -> Vec<Holding> {
        let mut held = self.held(owner.kind());
        held.retain(|h| h.owner == *owner);
        held.reverse();
        held
    }

    /// Notes something of what an owner holds.
    ///
    /// # Errors
    /// IO; nothing is held.
    pub fn note(&self, owner: &Owner, name: &str, value: Value) -> Result<(), Failure> {
        let Some(holding) = self.held_by(owner).into_iter().next() else {
            return Err(Failure::failed(format!("{owner} holds nothing")));
        };
        let journal = self
            .find(&holding.task_id)
            .ok_or_else(|| Failure::failed(format!("{owner} holds nothing")))?;
        let record = Record::Fact {
            name: name.to_owned(),
            value,
        };
        Ok(lock(&journal).add(record)?)
    }

    /// Ids of users that tasks have made and that are not given back, whether or not the host still has the users.
    #[must_use]
    pub fn user_ids(&self) -> BTreeSet<u32> {
        let ids = |j: &Shared| -> Vec<u32> {
            let journal = lock(j);
            let story = journal.story();
            let user = |s: &Step| match &s.effect {
                Effect::User(u) if s.remains() && !story.released => Some(u.uid),
                _ => None,
            };
            story.steps.iter().filter_map(user).collect()
        };
        self.all().iter().flat_map(ids).collect()
    }

    /// What of a holding is still there.
    ///
    /// # Errors
    /// If that cannot be seen.
    pub fn observe(&self, host: &Host, holding: &Holding) -> Result<Vec<(usize, Seen)>, Failure> {
        holding
            .effects
            .iter()
            .map(|(step, effect, trace)| {
                let seen = undo::observe(host, &holding.task_id, *step, effect, trace.as_ref())?;
                Ok((*step, seen))
            })
            .collect()
    }
}

fn holding(story: &Story) -> Option<Holding> {
    let owner = story.holds()?.clone();
    let remaining = story.steps.iter().enumerate().filter(|(_, s)| s.remains());
    Some(Holding {
        owner,
        task_id: story.task.task_id.clone(),
        since: story.ended.as_ref().map_or(story.taken_at, |e| e.finished_at),
        effects: remaining
            .map(|(i, s)| (i, s.effect.clone(), s.trace.clone()))
            .collect(),
        facts: story.facts.clone(),
    })
}
