//! One task from its beginning to an end that is on record: done, or undone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::{MAX_TASK_RESULT_BYTES, Params, TaskOutcome};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::{Context, Tell};
use super::failure::Failure;
use super::handler::{Handler, Recovery};
use super::host::Host;
use super::journal::{Record, Shared, Story, lock};
use super::ledger::Ledger;
use super::stop::Stop;
use super::undo;

/// How often a task that can be done twice is begun.
const ATTEMPTS: u32 = 3;
/// Pause before an end that could not be written down is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// What a task is carried out with.
pub(super) struct Saga<'a> {
    pub(super) host: &'a Host,
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) journal: &'a Shared,
    pub(super) handler: &'a dyn Handler,
    pub(super) params: &'a Params,
    pub(super) stop: &'a Stop,
    pub(super) tell: &'a Tell<'a>,
}

/// What is to be done with a task that the journal shows unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Not begun, or to be begun again.
    Run,
    /// To be undone.
    Undo,
}

/// What follows for a task that did not end before the agent did.
pub(super) fn next(story: &Story, handler: &dyn Handler) -> Next {
    match (story.attempts, handler.recovery()) {
        (0, _) => Next::Run,
        (n, Recovery::Again) if n < ATTEMPTS => Next::Run,
        _ => Next::Undo,
    }
}

impl Saga<'_> {
    /// Carries it out, to an end that is on record.
    pub(super) fn carry_out(&self) {
        let ended = self.attempt();
        self.end(ended);
    }

    fn attempt(&self) -> Result<Box<RawValue>, Failure> {
        // Of an earlier attempt.
        let undone = undo::all(self.host, self.journal)?;
        if let Some(why) = undone.stuck.first() {
            return Err(Failure::new(Code::OutcomeUnknown, why));
        }
        let now = self.host.clock.seconds();
        let id = {
            let mut journal = lock(self.journal);
            journal.add(Record::Began { at: now })?;
            journal.story().task.task_id.clone()
        };
        (self.tell)("begun", None);
        let mut context = Context {
            id,
            host: self.host,
            ledger: self.ledger,
            journal: self.journal,
            stop: self.stop.clone(),
            tell: self.tell,
            phase_began: Instant::now(),
        };
        // A handler that panics has failed; what it has done is undone all the same.
        let value = catch_unwind(AssertUnwindSafe(|| self.handler.run(&mut context, self.params)))
            .unwrap_or_else(|_| Err(Failure::failed("the handler broke; see the node's log")))?;
        raw(&value)
    }

    /// Undoes what an interrupted task has done.
    pub(super) fn undo_interrupted(&self) {
        let phase = lock(self.journal).story().phase.clone();
        let what = format!(
            "the agent was interrupted in phase {}; what the task had done is undone",
            phase.as_deref().unwrap_or("begun")
        );
        self.end(Err(Failure::new(Code::TaskInterrupted, what)));
    }

    /// Ends it before it was begun.
    pub(super) fn end_unbegun(&self, failure: Failure) {
        self.end(Err(failure));
    }

    fn end(&self, ended: Result<Box<RawValue>, Failure>) {
        let record = match ended {
            Ok(result) => self.record(TaskOutcome::Completed, None, result),
            Err(failure) => self.failed(failure),
        };
        loop {
            match lock(self.journal).add(record.clone()) {
                Ok(()) => return,
                // Not on record is not ended; the disk may have room again soon.
                Err(e) => tracing::error!("the end of a task cannot be written down: {e}"),
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn failed(&self, mut failure: Failure) -> Record {
        let mut findings = match undo::all(self.host, self.journal) {
            Ok(undone) => undone.stuck,
            Err(e) => vec![e.to_string()],
        };
        if findings.is_empty() {
            findings = lock(self.journal).story().findings();
        }
        if !findings.is_empty() {
            failure = Failure::new(
                Code::OutcomeUnknown,
                format!("{failure}; not all that it had done could be undone"),
            );
        }
        let outcome = match failure.code {
            Code::TaskCancelled => TaskOutcome::Cancelled,
            Code::TaskExpired => TaskOutcome::Expired,
            _ => TaskOutcome::Failed,
        };
        let timings = lock(self.journal).story().timings().clone();
        let mut result = json!({});
        if let Some(map) = result.as_object_mut() {
            if !findings.is_empty() {
                map.insert("findings".into(), json!(findings));
            }
            if !timings.is_empty() {
                map.insert("timings".into(), json!(timings));
            }
        }
        let result = raw(&result).unwrap_or_else(|_| RawValue::NULL.to_owned());
        self.record(outcome, Some(failure), result)
    }

    fn record(&self, outcome: TaskOutcome, failure: Option<Failure>, result: Box<RawValue>) -> Record {
        let (began_at, issued_at) = {
            let journal = lock(self.journal);
            let story = journal.story();
            (story.began_at, story.task.issued_at.seconds().0)
        };
        // A gateway takes no end before the issue, as a clock has it that fell back since.
        let now = self.host.clock.seconds().max(issued_at);
        let started_at = began_at.unwrap_or(now);
        Record::Ended {
            outcome,
            code: failure.as_ref().map(|f| f.code.as_str().to_owned()),
            detail: failure.map(|f| detail(&f.detail)),
            result,
            started_at,
            finished_at: now.max(started_at),
        }
    }
}

/// Printable and within the protocol's bound.
pub(super) fn detail(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if out.len().saturating_add(c.len_utf8()) > 1024 {
            break;
        }
        out.push(c);
    }
    out
}

fn raw(value: &Value) -> Result<Box<RawValue>, Failure> {
    let text = value.to_string();
    if text.len() > MAX_TASK_RESULT_BYTES {
        let what = format!(
            "the result has {} bytes, more than {MAX_TASK_RESULT_BYTES}",
            text.len()
        );
        return Err(Failure::failed(what));
    }
    if !value.is_object() {
        return Err(Failure::failed("the result is no object"));
    }
    RawValue::from_string(text).map_err(Failure::failed)
}
