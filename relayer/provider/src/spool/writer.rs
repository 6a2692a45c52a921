use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::accept::{Accept, Accepted, accept};
use super::together::accept_all;
use crate::fault;
use crate::gather::gather;
use crate::store::{Store, StoreError};

/// Reports that may wait for the writer; more get `503` and come again.
const QUEUE: usize = 4096;
/// Reports in one commit.
const GROUP: usize = 512;

type Reply = oneshot::Sender<Result<Accepted, StoreError>>;

/// Where admission puts reports. Cheap to clone; the writer ends when the last clone is gone.
#[derive(Debug, Clone)]
pub struct Spool(mpsc::Sender<(Accept, Reply)>);

impl Spool {
    /// Starts the writer.
    #[must_use]
    pub fn start(store: Store) -> (Self, JoinHandle<()>) {
        let (tx, rx) = mpsc::channel(QUEUE);
        (Self(tx), tokio::spawn(write(store, rx)))
    }

    /// Stores a report; returns once it is durable.
    ///
    /// # Errors
    /// If the queue is full or the store fails: the report is not accepted.
    pub async fn accept(&self, report: Accept) -> Result<Accepted, StoreError> {
        let (tx, rx) = oneshot::channel();
        self.0.try_send((report, tx)).map_err(|_| StoreError::Busy)?;
        rx.await.map_err(|_| StoreError::Stopped)?
    }

    /// Reports that wait for the writer, in thousandths of its queue.
    #[must_use]
    pub fn load_permille(&self) -> usize {
        (QUEUE - self.0.capacity().min(QUEUE)) * 1000 / QUEUE
    }
}

/// One commit, and with it one sync of the disk, serves all reports that came in meanwhile.
async fn write(store: Store, mut rx: mpsc::Receiver<(Accept, Reply)>) {
    loop {
        let group = gather(&mut rx, GROUP).await;
        if group.is_empty() {
            return;
        }
        let (reports, replies): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        match commit(&store, &reports).await {
            Ok(answers) => {
                fault::point("spool.committed");
                store.took_in(reports.len());
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // Whoever asked may have gone; the report stays accepted.
                    drop(reply.send(Ok(answer)));
                }
            }
            Err(e) => {
                tracing::error!(error = %e, reports = reports.len(), "the spool cannot be written; reports are turned away");
                for reply in replies {
                    drop(reply.send(Err(StoreError::Stopped)));
                }
            }
        }
    }
}

pub(super) async fn commit(store: &Store, reports: &[Accept]) -> Result<Vec<Accepted>, StoreError> {
    if let Some((tx, answers)) = accept_all(store, reports).await? {
        fault::point("spool.written");
        tx.commit().await?;
        return Ok(answers);
    }
    let mut tx = store.begin().await?;
    let mut answers = Vec::with_capacity(reports.len());
    for report in reports {
        answers.push(accept(&mut tx, report).await?);
    }
    fault::point("spool.written");
    tx.commit().await?;
    Ok(answers)
}
