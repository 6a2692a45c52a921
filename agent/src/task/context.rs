use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hpc_schema::id::TaskId;
use serde_json::Value;

use super::effect::{Effect, EffectError, Mark, Scene, Trace};
use super::exec::{ExecError, Output, Program};
use super::failure::Failure;
use super::host::Host;
use super::journal::{Record, Shared, Step, lock};
use super::ledger::{Holding, Ledger};
use super::owner::Owner;
use super::stop::Stop;
use super::undo::{self, Undone};

/// Tells how far a task is: phase and a word for people.
pub type Tell<'a> = dyn Fn(&str, Option<&str>) + 'a;

/// An effect of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

/// What a handler works with. Whatever it changes goes through here, and through the journal.
pub struct Context<'a> {
    pub(super) id: TaskId,
    pub(super) host: &'a Host,
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) journal: &'a Shared,
    pub(super) stop: Stop,
    pub(super) tell: &'a Tell<'a>,
    pub(super) phase_began: Instant,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// The task.
    #[must_use]
    pub fn task_id(&self) -> &TaskId {
        &self.id
    }

    /// The machine.
    #[must_use]
    pub fn host(&self) -> &Host {
        self.host
    }

    /// For whatever waits by itself.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Whether the task may go on.
    ///
    /// # Errors
    /// It was taken back, or took too long.
    pub fn check(&self) -> Result<(), Failure> {
        self.stop.check()
    }

    /// Begins a phase; the one before has ended.
    ///
    /// # Errors
    /// As [`Self::check`]; IO of the journal.
    pub fn phase(&mut self, name: &'static str) -> Result<(), Failure> {
        self.check()?;
        let took_ms = self.took();
        self.phase_began = Instant::now();
        let record = Record::Phase {
            name: name.to_owned(),
            took_ms,
        };
        lock(self.journal).add(record)?;
        (self.tell)(name, None);
        Ok(())
    }

    fn took(&self) -> u64 {
        u64::try_from(self.phase_began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds of each phase up to now.
    #[must_use]
    pub fn timings(&self) -> BTreeMap<String, u64> {
        let journal = lock(self.journal);
        let mut timings = journal.story().timings().clone();
        if let Some(phase) = &journal.story().phase {
            timings.insert(phase.clone(), self.took());
        }
        timings
    }

    /// Changes the host: written down, done, written down.
    ///
    /// # Errors
    /// Nothing is done that cannot be written down. Whatever went wrong is undone when the task ends.
    pub fn apply(&mut self, effect: impl Into<Effect>) -> Result<Handle, Failure> {
        self.check()?;
        let effect = effect.into();
        let step = {
            let mut journal = lock(self.journal);
            let step = journal.story().steps.len();
            journal.add(Record::Intent {
                step,
                effect: effect.clone(),
            })?;
            step
        };
        let mark = Mark {
            task_id: self.id.clone(),
            step,
        };
        let scene = Scene {
            host: self.host,
            mark: &mark,
            stop: &self.stop,
        };
        let mut note = |trace| {
            lock(self.journal)
                .add(Record::Made { step, trace })
                .map_err(|e| EffectError::Unknown(format!("it cannot be written down: {e}")))
        };
        effect.act().apply(scene, &mut note)?;
        lock(self.journal).add(Record::Done { step })?;
        Ok(Handle(step))
    }

    /// Undoes an effect of this task: what was needed for a while.
    ///
    /// # Errors
    /// If it cannot be undone.
    pub fn undo(&mut self, handle: Handle) -> Result<(), Failure> {
        let step = lock(self.journal).story().steps.get(handle.0).cloned();
        let Some(step) = step.filter(Step::remains) else {
            return Ok(());
        };
        let (journal, id) = (self.journal, self.id.clone());
        let undone = self.undo_one(journal, &id, handle.0, &step)?;
        match undone.stuck.first() {
            None => Ok(()),
            Some(why) => Err(EffectError::Unknown(why.clone()).into()),
        }
    }

    /// A machine may have many disks: the time of a wipe, which bounds itself, is not the task's.
    fn undo_one(
        &mut self,
        journal: &Shared,
        id: &TaskId,
        index: usize,
        step: &Step,
    ) -> Result<Undone, Failure> {
        let began = Instant::now();
        let undone = undo::one(self.host, journal, id, index, step)?;
        if matches!(step.effect, Effect::Disk(_)) {
            self.stop = self.stop.later(began.elapsed());
        }
        Ok(undone)
    }

    /// Undoes every effect of this task up to now, newest first.
    ///
    /// # Errors
    /// If one cannot be undone.
    pub fn undo_all(&mut self) -> Result<(), Failure> {
        let undone = undo::all(self.host, self.journal)?;
        match undone.stuck.first() {
            None => Ok(()),
            Some(why) => Err(EffectError::Unknown(why.clone()).into()),
        }
    }

    /// What identifies what an effect made.
    #[must_use]
    pub fn trace(&self, handle: Handle) -> Option<Trace> {
        let journal = lock(self.journal);
        journal.story().steps.get(handle.0)?.trace.clone()
    }

    /// The mark of what is started for an effect that this task is about to do next.
    #[must_use]
    pub fn next_mark(&self) -> Mark {
        Mark {
            task_id: self.id.clone(),
            step: lock(self.journal).story().steps.len(),
        }
    }

    /// Notes something of what stays.
    ///
    /// # Errors
    /// IO of the journal.
    pub fn fact(&mut self, name: &str, value: Value) -> Result<(), Failure> {
        let record = Record::Fact {
            name: name.to_owned(),
            value,
        };
        Ok(lock(self.journal).add(record)?)
    }

    /// What earlier tasks have left under this name, newest first.
    #[must_use]
    pub fn holdings(&self, owner: &Owner) -> Vec<Holding> {
        self.ledger.held_by(owner)
    }

    /// How many owners of this kind hold something.
    #[must_use]
    pub fn held(&self, kind: &str) -> Vec<Holding> {
        self.ledger.held(kind)
    }

    /// As [`Ledger::promised`].
    #[must_use]
    pub fn promised(&self, kind: &str, admitted: &str) -> Vec<BTreeMap<String, Value>> {
        self.ledger.promised(kind, admitted)
    }

    /// Ids of users that tasks have made and not given back, whether or not the host still has the users.
    #[must_use]
    pub fn held_user_ids(&self) -> std::collections::BTreeSet<u32> {
        self.ledger.user_ids()
    }

    /// Gives back all that earlier tasks have left under this name; it must be this task's owner.
    ///
    /// # Errors
    /// IO. What could not be undone stands in the answer, and stays held.
    pub fn release(&mut self, owner: &Owner) -> Result<Undone, Failure> {
        if lock(self.journal).story().owner.as_ref() != Some(owner) {
            return Err(Failure::failed(format!("this task does not work for {owner}")));
        }
        self.ledger.give_back(self.host, owner, self.id.as_str())
    }

    /// Gives back those of the effects that `which` names, newest first; the others stay held. It must be this task's owner.
    ///
    /// # Errors
    /// IO. What could not be undone stands in the answer, and stays held.
    pub fn release_some(
        &mut self,
        owner: &Owner,
        which: &dyn Fn(&Effect) -> bool,
    ) -> Result<Undone, Failure> {
        if lock(self.journal).story().owner.as_ref() != Some(owner) {
            return Err(Failure::failed(format!("this task does not work for {owner}")));
        }
        let mut all = Undone::default();
        for holding in self.ledger.held_by(owner) {
            let Some(journal) = self.ledger.find(&holding.task_id) else {
                continue;
            };
            for (step, effect, _) in holding.effects.iter().rev().filter(|(_, e, _)| which(e)) {
                self.check()?;
                let remains = lock(&journal).story().steps.get(*step).cloned();
                let Some(remains) = remains.filter(Step::remains) else {
                    continue;
                };
                self.say(&effect.act().shown());
                all.merge(self.undo_one(&journal, &holding.task_id, *step, &remains)?);
            }
        }
        Ok(all)
    }

    /// Notes something of what an owner holds.
    ///
    /// # Errors
    /// IO; nothing is held.
    pub fn note_on(&self, owner: &Owner, name: &str, value: Value) -> Result<(), Failure> {
        self.ledger.note(owner, name, value)
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// [`ExecError`].
    pub fn run(&self, program: Program) -> Result<Output, ExecError> {
        program.run(&self.stop)
    }

    /// Says a word for people about the present phase.
    pub fn say(&self, message: &str) {
        let phase = lock(self.journal).story().phase.clone();
        (self.tell)(phase.as_deref().unwrap_or("begun"), Some(message));
    }
}
