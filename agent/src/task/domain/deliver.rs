use hpc_schema::code::Code;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::task::{Cancellation, Delivered, Task, verify_cancellation};

use super::State;
use crate::task::failure::Failure;
use crate::task::journal::Record;
use crate::task::ledger::lock;
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
                    self.refuse(&id, hash, &Failure::new(Code::TaskMismatch, what));
                }
            };
        }
        if let Some(why) = self.damaged.get(&id) {
            let failure = Failure::new(Code::OutcomeUnknown, why);
            return self.refuse(&id, hash, &failure);
        }
        let now = self.host.clock.seconds();
        let checked = verify::check(&task, &self.authority, &self.host.policy, self.handlers, now);
        let taken = checked.and_then(|(handler, params)| {
            let record = Record::Taken {
                task: task.clone(),
                hash: hash.to_hex(),
                at: now,
                owner: handler.owner(&params),
            };
            self.jobs.room()?;
            Ok((handler, params, self.ledger.take(&id, record)?))
        });
        match taken {
            Ok((handler, params, journal)) => {
                tracing::info!(task = %id, kind = %task.task_type, "task taken");
                self.jobs.add(id, journal, handler, params, lease_seconds, false);
            }
            Err(failure) => {
                log_refusal(&task, &failure);
                self.refuse(&id, hash, &failure);
            }
        }
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
            // It never came here; nothing is to be undone.
            let failure = Failure::new(Code::TaskCancelled, "taken back before it came here");
            return self.refuse(id, hash, &failure);
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

fn log_refusal(task: &Task, failure: &Failure) {
    let (id, kind, detail) = (&task.task_id, &task.task_type, &failure.detail);
    tracing::warn!(task = %id, kind, code = %failure.code, "task refused: {detail}");
}
