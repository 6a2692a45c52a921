use std::collections::BTreeMap;

use hpc_schema::task::{Task, TaskOutcome};
use serde_json::Value;
use serde_json::value::RawValue;

use super::record::{Record, Timings};
use crate::task::effect::{Effect, Trace};
use crate::task::owner::Owner;

/// How an effect stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
    /// It may have been done.
    Intended,
    /// It was done.
    Done,
    /// It was undone.
    Undone,
    /// It could not be undone.
    Stuck(String),
}

/// An effect of a task.
#[derive(Debug, Clone)]
pub struct Step {
    /// What.
    pub effect: Effect,
    /// What identifies the thing.
    pub trace: Option<Trace>,
    /// How it stands.
    pub state: StepState,
}

impl Step {
    /// Whether it may still be on the host.
    #[must_use]
    pub fn remains(&self) -> bool {
        self.state != StepState::Undone
    }
}

/// How a task ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How.
    pub outcome: TaskOutcome,
    /// Why not.
    pub code: Option<String>,
    /// For people.
    pub detail: Option<String>,
    /// The bytes that are signed.
    pub result: Box<RawValue>,
    /// UNIX seconds.
    pub started_at: u64,
    /// UNIX seconds.
    pub finished_at: u64,
}

/// What the records of a task say.
#[derive(Debug, Clone)]
pub struct Story {
    /// As it was delivered.
    pub task: Task,
    /// Its hash, hex.
    pub hash: String,
    /// UNIX seconds.
    pub taken_at: u64,
    /// Under which name what it makes stays.
    pub owner: Option<Owner>,
    /// How often it was begun.
    pub attempts: u32,
    /// UNIX seconds of the first time.
    pub began_at: Option<u64>,
    /// Its effects, oldest first.
    pub steps: Vec<Step>,
    /// Facts of what stays.
    pub facts: BTreeMap<String, Value>,
    /// How it ended.
    pub ended: Option<Ended>,
    /// Whether the gateway has the result.
    pub heard: bool,
    /// Whether giving back what stayed was begun.
    pub releasing: bool,
    /// Whether what stayed was given back.
    pub released: bool,
    /// The phase it was in.
    pub phase: Option<String>,
    pub(super) timings: Timings,
}

impl Story {
    /// The first record begins it.
    pub(super) fn begin(record: Record) -> Option<Self> {
        let Record::Taken {
            task,
            hash,
            at,
            owner,
        } = record
        else {
            return None;
        };
        Some(Self {
            task,
            hash,
            taken_at: at,
            owner,
            attempts: 0,
            began_at: None,
            steps: Vec::new(),
            facts: BTreeMap::new(),
            ended: None,
            heard: false,
            releasing: false,
            released: false,
            phase: None,
            timings: Timings::new(),
        })
    }

    /// The next record; false if it cannot follow.
    pub(super) fn add(&mut self, record: Record) -> bool {
        match record {
            Record::Taken { .. } => return false,
            Record::Began { at } => {
                self.attempts = self.attempts.saturating_add(1);
                self.began_at.get_or_insert(at);
                self.phase = None;
                self.timings.clear();
            }
            Record::Phase { name, took_ms } => {
                if let Some(before) = self.phase.replace(name) {
                    self.timings.insert(before, took_ms);
                }
            }
            Record::Intent { step, effect } => {
                if step != self.steps.len() {
                    return false;
                }
                self.steps.push(Step {
                    effect,
                    trace: None,
                    state: StepState::Intended,
                });
            }
            Record::Made { step, trace } => return self.step(step, |s| s.trace = Some(trace)),
            Record::Done { step } => return self.step(step, |s| s.state = StepState::Done),
            Record::Undone { step } => return self.step(step, |s| s.state = StepState::Undone),
            Record::Stuck { step, why } => return self.step(step, |s| s.state = StepState::Stuck(why)),
            Record::Fact { name, value } => {
                self.facts.insert(name, value);
            }
            Record::Ended {
                outcome,
                code,
                detail,
                result,
                started_at,
                finished_at,
            } => {
                // The first end counts.
                self.ended.get_or_insert(Ended {
                    outcome,
                    code,
                    detail,
                    result,
                    started_at,
                    finished_at,
                });
            }
            Record::Heard => self.heard = true,
            Record::Releasing { .. } => self.releasing = true,
            Record::Released { .. } => self.released = true,
        }
        true
    }

    fn step(&mut self, step: usize, change: impl FnOnce(&mut Step)) -> bool {
        let Some(step) = self.steps.get_mut(step) else {
            return false;
        };
        change(step);
        true
    }

    /// Milliseconds of each phase that has ended.
    #[must_use]
    pub fn timings(&self) -> &BTreeMap<String, u64> {
        &self.timings
    }

    /// Whether it is done and what it made is still there, under its owner's name.
    #[must_use]
    pub fn holds(&self) -> Option<&Owner> {
        let completed = self
            .ended
            .as_ref()
            .is_some_and(|e| e.outcome == TaskOutcome::Completed);
        let owner = self.owner.as_ref()?;
        (completed && !self.released && self.steps.iter().any(Step::remains)).then_some(owner)
    }

    /// Whether something may still be on the host by it.
    #[must_use]
    pub fn remains(&self) -> bool {
        !self.released && self.steps.iter().any(Step::remains)
    }

    /// Whether something is left that nobody has any more: it did not end well and not all could be undone, or giving
    /// it back was begun and not finished.
    #[must_use]
    pub fn is_residue(&self) -> bool {
        let nobodys = |e: &Ended| e.outcome != TaskOutcome::Completed || self.releasing;
        self.ended.as_ref().is_some_and(nobodys) && self.remains()
    }

    /// An effect that could not be undone, and why.
    #[must_use]
    pub fn findings_of(&self, step: usize) -> Option<String> {
        let step = self.steps.get(step)?;
        match &step.state {
            StepState::Stuck(why) => Some(format!("{}: {why}", step.effect.act().shown())),
            _ => None,
        }
    }

    /// Effects that could not be undone.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        (0..self.steps.len())
            .filter_map(|n| self.findings_of(n))
            .collect()
    }
}
