use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::id::TaskId;
use hpc_schema::task::{TaskHash, TaskResult, result_message};
use hpc_schema::time::Rfc3339;
use serde_json::value::RawValue;

use super::{Output, State};
use crate::task::failure::Failure;
use crate::task::journal::{Ended, lock};
use crate::task::refusals::Refused;

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

    /// Says that a task is not begun, now or ever: that is on the disk before it is said. `until` no task of this hash
    /// can be begun any more, in UNIX seconds.
    pub(super) fn refuse(&mut self, id: &TaskId, hash: TaskHash, failure: &Failure, until: u64) {
        let refused = Refused::new(id, hash, failure, self.host.clock.seconds(), until);
        match self.refusals.add(refused) {
            Ok(()) => drop(self.was_refused(hash)),
            Err(e) => tracing::error!(task = %id, "a refusal cannot be written down and is not said: {e}"),
        }
    }

    /// Says again that a task of this hash is refused, if it is.
    pub(super) fn was_refused(&self, hash: TaskHash) -> bool {
        let Some(refused) = self.refusals.find(&hash.to_hex()) else {
            return false;
        };
        if let Ok(result) = RawValue::from_string("{}".to_owned()) {
            let ended = Ended {
                outcome: refused.outcome,
                code: Some(refused.code.clone()),
                detail: Some(refused.detail.clone()),
                result,
                started_at: refused.at,
                finished_at: refused.at,
            };
            self.send(&refused.task_id, hash, ended);
        }
        true
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
