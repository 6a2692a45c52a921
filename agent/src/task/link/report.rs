use std::collections::VecDeque;
use std::time::Duration;

use hpc_schema::code::Code;
use hpc_schema::gateway::Problem;
use hpc_schema::id::{NodeId, TaskId};
use hpc_schema::task::{ProgressRequest, TaskResult, progress_path, result_path};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::way::Way;
use crate::random;
use crate::task::domain::{Input, Output};
use crate::uplink::{Answer, Backoff};

/// Results that wait to be taken; beyond, the domain says them again later.
const WAITING: usize = 256;

/// Carries results until the gateway has them, and progress while it can.
pub(super) struct Reports {
    node: NodeId,
    way: Way,
    tell: mpsc::Sender<Input>,
    backoff: Backoff,
    results: VecDeque<(TaskId, Box<TaskResult>)>,
    retry_at: Instant,
}

impl Reports {
    pub(super) fn new(node: NodeId, way: Way, tell: mpsc::Sender<Input>) -> Self {
        Self {
            node,
            way,
            tell,
            backoff: Way::backoff(),
            results: VecDeque::new(),
            retry_at: Instant::now(),
        }
    }

    /// Until the domain says no more.
    pub(super) async fn run(mut self, mut said: mpsc::Receiver<Output>) {
        loop {
            // A result that was not taken is tried again after a while, whatever comes meanwhile.
            let waits = !self.results.is_empty();
            let next = tokio::select! {
                biased;
                () = sleep_until(self.retry_at), if waits => {
                    self.results().await;
                    continue;
                }
                next = said.recv() => next,
            };
            match next {
                None => return,
                Some(Output::Progress { task_id, progress }) => self.progress(&task_id, &progress).await,
                Some(Output::Result { task_id, result }) => {
                    self.results.retain(|(id, _)| *id != task_id);
                    if self.results.len() < WAITING {
                        self.results.push_back((task_id, result));
                    }
                    self.results().await;
                }
            }
        }
    }

    async fn results(&mut self) {
        while let Some((id, result)) = self.results.pop_front() {
            let path = result_path(&self.node, &id);
            let settled = match self.post(&path, &*result).await {
                Some(answer) => settled(&id, &answer),
                None => Settled::Not,
            };
            match settled {
                Settled::Heard => {
                    self.backoff.reset();
                    if self.tell.send(Input::Heard { task_id: id }).await.is_err() {
                        return;
                    }
                }
                // The domain signs it anew when it says it again.
                Settled::Stale => {}
                Settled::Not => {
                    self.results.push_back((id, result));
                    let pause = self.backoff.next(random::up_to);
                    self.retry_at = Instant::now() + pause;
                    return;
                }
            }
        }
    }

    async fn progress(&mut self, id: &TaskId, progress: &ProgressRequest) {
        let path = progress_path(&self.node, id);
        // It is said again before the lease is over.
        if let Some(answer) = self.post(&path, progress).await
            && answer.status != 200
        {
            tracing::debug!(task = %id, status = answer.status, "progress was not taken");
        }
    }

    async fn post<T: Serialize>(&mut self, path: &str, body: &T) -> Option<Answer> {
        let body = serde_json::to_vec(body).ok()?;
        match self.way.post(path, body).await {
            Ok(answer) => Some(answer),
            Err(e) => {
                tracing::warn!(code = e.code(), "word of a task: {e}; {}", e.remedy());
                sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }
}

/// What the gateway's answer means for a result.
enum Settled {
    /// It has it, or will never take it.
    Heard,
    /// It does not take this signature.
    Stale,
    /// It is to be sent again.
    Not,
}

fn settled(id: &TaskId, answer: &Answer) -> Settled {
    let code = || {
        let problem = serde_json::from_slice::<Problem>(&answer.body).ok()?;
        Code::from_word(&problem.code)
    };
    match answer.status {
        200 => Settled::Heard,
        404 | 409 => match code() {
            // Forgotten, over, or of another task of this id: nothing that is said again changes that.
            Some(code @ (Code::UnknownTask | Code::InvalidState | Code::TaskMismatch)) => {
                tracing::warn!(task = %id, %code, "the gateway does not take the result");
                Settled::Heard
            }
            Some(Code::SignatureInvalid) => Settled::Stale,
            _ => Settled::Not,
        },
        400 | 413 => {
            tracing::error!(task = %id, status = answer.status, "the gateway cannot read the result");
            Settled::Heard
        }
        _ => Settled::Not,
    }
}
