use std::time::Duration;

use hpc_schema::id::{ClusterId, TaskId};
use hpc_schema::task::TaskState;
use tokio::time::{Instant, sleep, timeout_at};

use super::Admin;
use super::error::AdminError;
use super::task::TaskFull;
use crate::store::Heard;
use crate::task;

/// A busy store is not looked at more often than this.
const SHORTEST: Duration = Duration::from_millis(50);
/// Without any news it is looked at as often as this, for one may be missed.
const LONGEST: Duration = Duration::from_secs(5);

/// What of a task is known already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its state; none: nothing is known.
    pub state: Option<TaskState>,
    /// How many of its phases.
    pub progress: u64,
}

impl Admin {
    /// The task as soon as it is another than was seen, with the phases that follow; as it is after `within`, or once it is over.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub async fn wait_task(
        &self,
        id: &TaskId,
        cluster: Option<&ClusterId>,
        seen: Seen,
        within: Duration,
        mut news: Heard,
    ) -> Result<TaskFull, AdminError> {
        let until = Instant::now() + within;
        loop {
            news.mark();
            let row = self.task(id, cluster).await?;
            let progress = task::progress_of(self.store.reader(), &row.cluster_id, id, seen.progress).await?;
            let known = seen.state == Some(row.state) && progress.is_empty();
            if !known || row.state.is_end() || Instant::now() >= until {
                return Ok(TaskFull { row, progress });
            }
            sleep(SHORTEST).await;
            // It may have been missed; then it is looked at all the same.
            drop(timeout_at(until.min(Instant::now() + LONGEST), news.news()).await);
        }
    }
}
