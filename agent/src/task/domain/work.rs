use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use hpc_schema::code::Code;
use hpc_schema::id::TaskId;
use hpc_schema::task::{MAX_PROGRESS_MESSAGE, Params, ProgressRequest};
use hpc_schema::time::Rfc3339;

use super::{Input, Out, Output};
use crate::clock::Clock;
use crate::task::failure::Failure;
use crate::task::handler::Handler;
use crate::task::host::Host;
use crate::task::journal::{Shared, lock};
use crate::task::ledger::{Ledger, OwnerLock};
use crate::task::saga::{Next, Saga, next};
use crate::task::stop::Stop;

/// What a task's thread is given.
pub(super) struct Work {
    pub(super) id: TaskId,
    pub(super) host: Arc<Host>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) journal: Shared,
    pub(super) handler: &'static dyn Handler,
    pub(super) params: Params,
    pub(super) stop: Stop,
    pub(super) out: Out,
    pub(super) tell: SyncSender<Input>,
    pub(super) owner: Option<OwnerLock>,
}

/// Starts the task's thread.
pub(super) fn start(work: Work) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("task".to_owned())
        .spawn(move || {
            run(&work);
            let Work { id, tell, owner, .. } = work;
            drop(owner);
            // The domain is gone: nobody has to know.
            tell.send(Input::Worked(id)).ok();
        })
        .map(drop)
}

fn run(work: &Work) {
    let say = |phase: &str, message: Option<&str>| {
        tell_phase(&work.journal, &work.out, phase, message);
    };
    let saga = Saga {
        host: &work.host,
        ledger: &work.ledger,
        journal: &work.journal,
        handler: work.handler,
        params: &work.params,
        stop: &work.stop,
        tell: &say,
    };
    let story = lock(&work.journal).story().clone();
    match next(&story, work.handler) {
        Next::Undo => saga.undo_interrupted(),
        Next::Run if story.attempts == 0 && work.host.clock.seconds() > story.task.expires_at.seconds().0 => {
            let what = format!("it could not be begun before {}", story.task.expires_at);
            saga.end_unbegun(Failure::new(Code::TaskExpired, what));
        }
        Next::Run => match work.stop.check() {
            Ok(()) => saga.carry_out(),
            Err(failure) => saga.end_unbegun(failure),
        },
    }
    let ended = lock(&work.journal).story().ended.clone();
    if let Some(ended) = ended {
        let (id, outcome) = (&work.id, ended.outcome.as_str());
        tracing::info!(task = %id, outcome, code = ended.code.as_deref(), detail = ended.detail.as_deref(), "task ended");
    }
}

/// Says in which phase a task is; one that waits for its turn is in none.
pub(super) fn tell(journal: &Shared, out: &Out, runs: bool) {
    let phase = lock(journal).story().phase.clone().filter(|_| runs);
    let none = if runs { "begun" } else { "waiting" };
    tell_phase(journal, out, phase.as_deref().unwrap_or(none), None);
}

fn tell_phase(journal: &Shared, out: &Out, phase: &str, message: Option<&str>) {
    let (task_id, task_hash) = {
        let journal = lock(journal);
        (journal.story().task.task_id.clone(), journal.story().hash.clone())
    };
    let now = Clock::system().since_epoch();
    let Ok(at) = Rfc3339::from_unix(now.as_secs(), now.subsec_nanos()) else {
        return;
    };
    let message = message.map(|m| {
        let mut m: String = m.chars().filter(|c| !c.is_control()).collect();
        while m.len() > MAX_PROGRESS_MESSAGE {
            m.pop();
        }
        m
    });
    out(Output::Progress {
        task_id,
        progress: ProgressRequest {
            task_hash,
            phase: phase.to_owned(),
            message,
            at,
        },
    });
}
