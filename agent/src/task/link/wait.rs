use std::time::Duration;

use hpc_schema::id::NodeId;
use hpc_schema::task::{WaitAnswer, wait_path};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::way::Way;
use crate::random;
use crate::task::domain::Input;
use crate::uplink::{Answer, Backoff};

/// How long the gateway may keep us waiting.
const WAIT: Duration = Duration::from_secs(50);
/// Failing for so long, the process is started anew: it may read the files that were there at its start, and no others.
const IN_VAIN: Duration = Duration::from_secs(600);
/// Pause after another connection of this node took our place.
const SUPERSEDED: Duration = Duration::from_secs(20);

/// Waits for tasks, until it is in vain for long.
pub(super) struct Wait {
    node: NodeId,
    way: Way,
    tell: mpsc::Sender<Input>,
    backoff: Backoff,
}

/// What follows.
enum Then {
    Again,
    Pause(Option<Duration>),
}

impl Wait {
    pub(super) fn new(node: NodeId, way: Way, tell: mpsc::Sender<Input>) -> Self {
        Self {
            node,
            way,
            tell,
            backoff: Way::backoff(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut greet = true;
        let mut good = Instant::now();
        let path = format!("{}?wait_seconds={}", wait_path(&self.node), WAIT.as_secs());
        loop {
            if greet && self.tell.send(Input::Hello).await.is_err() {
                return;
            }
            greet = false;
            let then = match self.way.get(&path, WAIT).await {
                Ok(answer) => {
                    good = Instant::now();
                    self.take(&answer).await
                }
                Err(e) => {
                    tracing::warn!(code = e.code(), "waiting for tasks: {e}; {}", e.remedy());
                    if good.elapsed() > IN_VAIN {
                        return;
                    }
                    Then::Pause(None)
                }
            };
            if let Then::Pause(wanted) = then {
                // What was said meanwhile may be lost.
                greet = true;
                let drawn = self.backoff.next(random::up_to);
                sleep(wanted.unwrap_or(drawn).max(drawn)).await;
            }
            if self.tell.is_closed() {
                return;
            }
        }
    }

    async fn take(&mut self, answer: &Answer) -> Then {
        match answer.status {
            200 => match serde_json::from_slice::<WaitAnswer>(&answer.body) {
                Ok(answer) => {
                    self.backoff.reset();
                    self.hand_over(answer).await;
                    Then::Again
                }
                Err(e) => {
                    tracing::warn!("the gateway's answer cannot be read: {e}");
                    Then::Pause(None)
                }
            },
            204 => {
                self.backoff.reset();
                Then::Again
            }
            409 => {
                tracing::warn!(
                    "another connection of this node waits for its tasks; run one task agent a node"
                );
                Then::Pause(Some(SUPERSEDED))
            }
            status => {
                let text = String::from_utf8_lossy(&answer.body);
                tracing::warn!(status, "the gateway gives no tasks: {}", text.trim());
                Then::Pause(answer.retry_after)
            }
        }
    }

    async fn hand_over(&self, answer: WaitAnswer) {
        let keys = Input::Keys {
            steps: answer.task_keys,
        };
        let tasks = answer.tasks.into_iter().map(|d| Input::Deliver(Box::new(d)));
        let cancel = answer.cancel.into_iter().map(Input::Cancel);
        // Rotations first: what follows may be signed by the new key.
        let keys = std::iter::once(keys).filter(|k| !matches!(k, Input::Keys { steps } if steps.is_empty()));
        for input in keys.chain(tasks).chain(cancel) {
            if self.tell.send(input).await.is_err() {
                return;
            }
        }
    }
}
