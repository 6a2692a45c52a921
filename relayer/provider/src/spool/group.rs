//! Reports that are written, and answered, together.

use std::fmt::Debug;

use tokio::sync::mpsc;
#[cfg(test)]
use tokio::sync::oneshot;

use super::accept::{Accept, Accepted};
use crate::gather::gather;
use crate::store::StoreError;

/// Reports in one commit.
const GROUP: usize = 512;

/// Who hears what became of a report.
pub(crate) trait Hears: Debug + Send {
    /// It is durable, or not stored.
    fn hears(self: Box<Self>, became: Result<Accepted, StoreError>);
}

#[cfg(test)]
impl Hears for oneshot::Sender<Result<Accepted, StoreError>> {
    fn hears(self: Box<Self>, became: Result<Accepted, StoreError>) {
        drop(self.send(became));
    }
}

pub(super) type Reply = Box<dyn Hears>;

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
        reply.hears(Err(StoreError::Stopped));
    }
}

/// Everybody of a group gets their answer.
pub(super) fn tell(replies: Vec<Reply>, answers: Vec<Accepted>) {
    for (reply, answer) in replies.into_iter().zip(answers) {
        // Whoever asked may have gone; the report stays accepted.
        reply.hears(Ok(answer));
    }
}
