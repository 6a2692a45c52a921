//! Undoing what a journal tells: the one way for failures, crashes and releases.

use std::time::Duration;

use hpc_schema::id::TaskId;

use super::effect::{Effect, EffectError, Mark, Scene, Seen, Trace};
use super::failure::Failure;
use super::host::Host;
use super::journal::{Record, Shared, Step, StepState, lock};
use super::stop::Stop;

/// Undoing is not cut short by what ended the task; a single step has this long.
const LIMIT: Duration = Duration::from_secs(3600);
/// More than the wipe of a big disk may take, which bounds itself.
const WIPE: Duration = Duration::from_secs(4 * 3600);

/// What was undone and what was not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Undone {
    /// How many effects.
    pub undone: usize,
    /// Those that could not be, with the reason.
    pub stuck: Vec<String>,
}

impl Undone {
    pub(super) fn merge(&mut self, other: Self) {
        self.undone = self.undone.saturating_add(other.undone);
        self.stuck.extend(other.stuck);
    }
}

/// Undoes all that remains of a task, newest first, each written down. The journal is not locked meanwhile.
///
/// # Errors
/// IO of the journal.
pub(super) fn all(host: &Host, journal: &Shared) -> Result<Undone, Failure> {
    let (id, steps) = {
        let journal = lock(journal);
        let story = journal.story();
        let remaining = story
            .steps
            .iter()
            .cloned()
            .enumerate()
            .filter(|(_, s)| s.remains());
        (story.task.task_id.clone(), remaining.collect::<Vec<_>>())
    };
    let mut all = Undone::default();
    for (index, step) in steps.into_iter().rev() {
        // What could not be brought back is nobody else's either.
        if !all.stuck.is_empty() && matches!(step.effect, Effect::Lease(_)) {
            continue;
        }
        all.merge(one(host, journal, &id, index, &step)?);
    }
    Ok(all)
}

/// Undoes one effect.
///
/// # Errors
/// IO of the journal.
pub(super) fn one(
    host: &Host,
    journal: &Shared,
    id: &TaskId,
    index: usize,
    step: &Step,
) -> Result<Undone, Failure> {
    let mut undone = Undone::default();
    match undo(host, id, index, &step.effect, step.trace.as_ref()) {
        Ok(()) => {
            lock(journal).add(Record::Undone { step: index })?;
            undone.undone = 1;
        }
        Err(e) => {
            tracing::error!(task = %id, step = index, "{} cannot be undone: {e}", step.effect.act().shown());
            let why = e.to_string();
            undone.stuck.push(format!("{}: {why}", step.effect.act().shown()));
            // It is tried again and again; the same news is none.
            if step.state != StepState::Stuck(why.clone()) {
                lock(journal).add(Record::Stuck { step: index, why })?;
            }
        }
    }
    Ok(undone)
}

fn limit(effect: &Effect) -> Duration {
    match effect {
        Effect::Disk(_) => WIPE,
        _ => LIMIT,
    }
}

fn undo(
    host: &Host,
    id: &TaskId,
    step: usize,
    effect: &Effect,
    trace: Option<&Trace>,
) -> Result<(), EffectError> {
    let mark = Mark {
        task_id: id.clone(),
        step,
    };
    let stop = Stop::after(limit(effect));
    let scene = Scene {
        host,
        mark: &mark,
        stop: &stop,
    };
    effect.act().undo(scene, trace)?;
    // Said to be gone and gone are two things.
    match effect.act().observe(scene, trace)? {
        Seen::Ours => Err(EffectError::Unknown(
            "it was undone and is still there".to_owned(),
        )),
        Seen::Absent | Seen::Foreign(_) => Ok(()),
    }
}

/// What of an effect is there now.
///
/// # Errors
/// If that cannot be seen.
pub(super) fn observe(
    host: &Host,
    id: &TaskId,
    step: usize,
    effect: &Effect,
    trace: Option<&Trace>,
) -> Result<Seen, EffectError> {
    let mark = Mark {
        task_id: id.clone(),
        step,
    };
    let stop = Stop::after(limit(effect));
    let scene = Scene {
        host,
        mark: &mark,
        stop: &stop,
    };
    effect.act().observe(scene, trace)
}
