//! Reports that are written, and answered, together.

use tokio::sync::{mpsc, oneshot};

use super::accept::{Accept, Accepted};
use crate::gather::gather;
use crate::store::StoreError;

/// Reports in one commit.
const GROUP: usize = 512;

pub(crate) type Reply = oneshot::Sender<Result<Accepted, StoreError>>;

/// A report where it was made: it goes through several hands.
pub(super) type Made = Box<Accept>;

/// One that waits for the writer.
pub(super) type Queued = (Made, Reply);

/// What came in while the last group was being written: one sync of the disk serves all of it. Nothing at the queue's end.
pub(super) async fn group(rx: &mut mpsc::Receiver<Queued>) -> Option<(Vec<Made>, Vec<Reply>)> {
    let group = gather(rx, GROUP).await;
    (!group.is_empty()).then(|| group.into_iter().unzip())
}

/// Nobody of a group was accepted.
pub(super) fn turn_away(replies: Vec<Reply>, error: &dyn std::fmt::Display) {
    let reports = replies.len();
    tracing::error!(%error, reports, "the spool cannot be written; reports are turned away");
    for reply in replies {
        drop(reply.send(Err(StoreError::Stopped)));
    }
}

/// Everybody of a group gets their answer.
pub(super) fn tell(replies: Vec<Reply>, answers: Vec<Accepted>) {
    for (reply, answer) in replies.into_iter().zip(answers) {
        // Whoever asked may have gone; the report stays accepted.
        drop(reply.send(Ok(answer)));
    }
}
