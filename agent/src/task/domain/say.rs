use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::id::TaskId;
use hpc_schema::task::{TaskHash, TaskOutcome, TaskResult, result_message};
use hpc_schema::time::Rfc3339;
use serde_json::value::RawValue;

use super::{Output, State};
use crate::task::failure::Failure;
use crate::task::journal::Ended;
use crate::task::ledger::lock;
use crate::task::saga::detail;

impl State {
    /// Says how every task ended of which the gateway has not heard.
    pub(super) fn say_all(&mut self) {
        self.said = std::time::Instant::now();
        for journal in self.ledger.all() {
            let unheard = {
                let journal = lock(&journal);
                let story = journal.story();
                (story.ended.is_some() && !story.heard).then(|| story.task.task_id.clone())
            };
            if let Some(id) = unheard {
                self.say(&id);
            }
        }
    }

    /// Says how a task ended.
    pub(super) fn say(&self, id: &TaskId) {
        let Some(journal) = self.ledger.find(id) else {
            return;
        };
        let (hash, ended) = {
            let journal = lock(&journal);
            (journal.story().hash.clone(), journal.story().ended.clone())
        };
        if let (Some(hash), Some(ended)) = (TaskHash::from_hex(&hash), ended) {
            self.send(id, hash, ended);
        }
    }

    /// Says that a task was not begun. Nothing is on record of it: delivered again, it is refused again.
    pub(super) fn refuse(&self, id: &TaskId, hash: TaskHash, failure: &Failure) {
        let now = self.host.clock.seconds();
        let outcome = match failure.code {
            hpc_schema::code::Code::TaskExpired => TaskOutcome::Expired,
            hpc_schema::code::Code::TaskCancelled => TaskOutcome::Cancelled,
            _ => TaskOutcome::Failed,
        };
        let Ok(result) = RawValue::from_string("{}".to_owned()) else {
            return;
        };
        let ended = Ended {
            outcome,
            code: Some(failure.code.as_str().to_owned()),
            detail: Some(detail(&failure.detail)),
            result,
            started_at: now,
            finished_at: now,
        };
        self.send(id, hash, ended);
    }

    fn send(&self, id: &TaskId, hash: TaskHash, ended: Ended) {
        let at = |seconds| Rfc3339::from_unix(seconds, 0);
        let (Ok(started_at), Ok(finished_at)) = (at(ended.started_at), at(ended.finished_at)) else {
            return tracing::error!(task = %id, "the clock is wrong; the result cannot be said");
        };
        let mut result = TaskResult {
            task_hash: hash.to_hex(),
            outcome: ended.outcome,
            code: ended.code,
            detail: ended.detail,
            result: ended.result,
            started_at,
            finished_at,
            signature: String::new(),
        };
        // Said again with the next hello if the key's device does not answer now.
        match self.sign.sign(&result_message(hash, &result)) {
            Ok(signature) => result.signature = STANDARD.encode(signature),
            Err(e) => return tracing::error!(task = %id, "the result cannot be signed: {e}"),
        }
        (self.out)(Output::Result {
            task_id: id.clone(),
            result: Box::new(result),
        });
    }
}
