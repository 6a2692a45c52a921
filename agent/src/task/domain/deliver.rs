use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::task::{Cancellation, Delivered, Task, verify_cancellation};

use super::State;
use crate::task::failure::Failure;
use crate::task::journal::{Record, lock};
use crate::task::verify;

impl State {
    /// Takes a task: a new one is judged and written down, one that is known is answered.
    pub(super) fn deliver(&mut self, delivered: Delivered) {
        let Delivered {
            task, lease_seconds, ..
        } = delivered;
        let id = task.task_id.clone();
        let Some(hash) = verify::hash_of(&task, &self.authority) else {
            tracing::warn!(task = %id, "a task without a nonce is passed over");
            return;
        };
        if let Some(journal) = self.ledger.find(&id) {
            let (same, over) = {
                let journal = lock(&journal);
                (
                    journal.story().hash == hash.to_hex(),
                    journal.story().ended.is_some(),
                )
            };
            return match (same, over) {
                (true, true) => self.say(&id),
                (true, false) => self.jobs.said_again(&id, &self.out),
                (false, _) => {
                    let what = "another task was taken under this id";
                    self.refuse(&id, hash, &Failure::new(Code::TaskMismatch, what), until(&task));
                }
            };
        }
        if self.was_refused(hash) {
            return;
        }
        if let Some(failure) = self.unreadable(&id) {
            return self.refuse(&id, hash, &failure, until(&task));
        }
        let now = self.host.clock.seconds();
        let checked = verify::check(&task, &self.authority, &self.host.policy, self.handlers, now);
        let (handler, params) = match checked {
            Ok(checked) => checked,
            Err(failure) => {
                log_refusal(&task, &failure);
                return self.refuse(&id, hash, &failure, until(&task));
            }
        };
        let record = Record::Taken {
            hash: hash.to_hex(),
            at: now,
            owner: handler.owner(&params),
            task,
        };
        // What passes is no end: nothing is said, and the gateway delivers it again.
        let room = self.jobs.room();
        match room.and_then(|()| self.ledger.take(&id, record)) {
            Ok(journal) => {
                tracing::info!(task = %id, kind = %params.kind(), "task taken");
                self.jobs.add(id, journal, handler, params, lease_seconds, false);
            }
            Err(failure) => tracing::warn!(task = %id, "a task is not taken now: {failure}"),
        }
    }

    /// That a journal of this task cannot be read.
    fn unreadable(&self, id: &TaskId) -> Option<Failure> {
        let why = self.ledger.damaged().get(id.as_str())?;
        Some(Failure::new(Code::OutcomeUnknown, why))
    }

    /// Ends a task that is taken back.
    pub(super) fn cancel(&mut self, cancellation: &Cancellation) {
        let id = &cancellation.task_id;
        let scope = self.authority.scope();
        let hash = match verify_cancellation(cancellation, &scope, &self.authority.task_key, &ZebraVerifier) {
            Ok(hash) => hash,
            Err(e) => return tracing::warn!(task = %id, "a cancellation is refused: {e}"),
        };
        let Some(journal) = self.ledger.find(id) else {
            if self.was_refused(hash) {
                return;
            }
            // It never came here; nothing is to be undone, and should it come it is not begun.
            let failure = self.unreadable(id);
            let failure = failure
                .unwrap_or_else(|| Failure::new(Code::TaskCancelled, "taken back before it came here"));
            let until = self.host.clock.seconds().saturating_add(LONGEST_LIFE);
            return self.refuse(id, hash, &failure, until);
        };
        if lock(&journal).story().hash != hash.to_hex() {
            return tracing::warn!(task = %id, "a cancellation of another task with this id is passed over");
        }
        if lock(&journal).story().ended.is_some() {
            return self.say(id);
        }
        tracing::info!(task = %id, "task taken back");
        self.jobs.cancel(id);
    }
}

/// No task that was signed by now, or within the minute that clocks may differ by, lives longer; a day on top.
const LONGEST_LIFE: u64 = 9 * 24 * 3600;
/// The clock may be set back.
const DAY: u64 = 24 * 3600;

/// When no task of this hash can be begun any more.
fn until(task: &Task) -> u64 {
    task.expires_at.seconds().0.saturating_add(DAY)
}

fn log_refusal(task: &Task, failure: &Failure) {
    let (id, kind, detail) = (&task.task_id, &task.task_type, &failure.detail);
    tracing::warn!(task = %id, kind, code = %failure.code, "task refused: {detail}");
}
