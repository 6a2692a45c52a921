use std::collections::BTreeSet;

use hpc_schema::id::TaskId;

use super::{Found, Kind};
use crate::task::effect::Effect;
use crate::task::journal::lock;
use crate::task::ledger::Ledger;

/// What the journals say may be on the host.
#[derive(Debug, Default)]
pub struct Should {
    marks: BTreeSet<(TaskId, usize)>,
    paths: BTreeSet<String>,
    groups: BTreeSet<String>,
    damaged: BTreeSet<String>,
}

/// What something is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A journal has it.
    Known,
    /// It may be a task's whose journal cannot be read.
    Unclear,
    /// No journal has it.
    Orphan,
}

impl Should {
    /// By all journals that can be read.
    #[must_use]
    pub fn of(ledger: &Ledger) -> Self {
        let mut all = Self {
            damaged: ledger.damaged().keys().cloned().collect(),
            ..Self::default()
        };
        for journal in ledger.all() {
            let journal = lock(&journal);
            let story = journal.story();
            for (n, step) in story.steps.iter().enumerate().filter(|(_, s)| s.remains()) {
                all.marks.insert((story.task.task_id.clone(), n));
                let path = match &step.effect {
                    Effect::Directory(e) => &e.path,
                    Effect::File(e) => &e.path,
                    Effect::Produced(e) => &e.path,
                    Effect::Lease(e) => &e.path,
                    Effect::Machine(e) => {
                        all.groups.insert(e.group.clone());
                        continue;
                    }
                    _ => continue,
                };
                all.paths.insert(path.to_string());
            }
        }
        all
    }

    /// Whether this may be there.
    #[must_use]
    pub fn of_this(&self, found: &Found) -> Verdict {
        let known = match (&found.task_id, found.step) {
            (Some(task), Some(step)) => self.marks.contains(&(task.clone(), step)),
            _ if found.kind == Kind::ControlGroup => {
                let name = found.name.rsplit('/').next().unwrap_or_default();
                self.groups.contains(name)
            }
            _ => self.paths.contains(&found.name),
        };
        // Without a mark it can be any task's.
        let unclear = match &found.task_id {
            Some(task) => self.damaged.contains(task.as_str()),
            None => !self.damaged.is_empty() || found.kind == Kind::Mount,
        };
        match (known, unclear) {
            (true, _) => Verdict::Known,
            (false, true) => Verdict::Unclear,
            (false, false) => Verdict::Orphan,
        }
    }
}
