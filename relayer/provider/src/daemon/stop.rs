//! The daemon's end.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{Daemon, StartError};

/// How long each of the last steps may take: all tasks beside settlement, and the store.
const LAST: Duration = Duration::from_secs(5);
/// How long the spool may take to bring to disk what it has.
const SPOOL: Duration = Duration::from_secs(10);
/// What the process needs beside its steps.
const MARGIN: Duration = Duration::from_secs(10);

impl Daemon {
    /// Ends when something ends that should not.
    pub async fn failed(&mut self) -> StartError {
        tokio::select! {
            ended = &mut self.driver => match ended {
                Ok(Err(e)) => e,
                Ok(Ok(())) => StartError::Ended("settlement"),
                Err(_) => StartError::Ended("settlement"),
            },
            ended = &mut self.checking => ended.unwrap_or(StartError::Ended("the look at the chain")),
            _ = &mut self.intake => StartError::Ended("the gateway"),
            _ = &mut self.spool => StartError::Ended("the spool"),
            name = self.rest.ended() => StartError::Ended(name),
        }
    }

    /// The longest that [`Self::stop`] takes, with the budgets of the configuration.
    #[must_use]
    pub fn stop_budget(&self) -> Duration {
        let config = self.live.get();
        let budgets = config.stop.intake.duration() + config.stop.settlement.duration();
        budgets + SPOOL + LAST * 2 + MARGIN
    }

    /// Stops in order: no new requests, the spool to disk, the transaction under way, the rest.
    pub async fn stop(self) {
        tracing::info!("stopping");
        let Self {
            store,
            stop_intake,
            stop_settlement,
            stop_rest,
            intake,
            spool,
            driver,
            checking,
            rest,
            ..
        } = self;
        checking.abort();
        stop_intake.send_replace(true);
        join("the gateway", intake, Duration::from_secs(310)).await;
        // The last sender is gone with the gateway and what it had verified, so the writer ends when its queue is empty.
        join("the spool", spool, SPOOL).await;
        stop_settlement.send_replace(true);
        join("settlement", driver, Duration::from_secs(310)).await;
        stop_rest.send_replace(true);
        // Together: whoever stops us waits for a bounded time.
        let until = Instant::now() + LAST;
        for (name, task) in rest.into_tasks() {
            join(name, task, until.saturating_duration_since(Instant::now())).await;
        }
        // What still holds a connection by now is rolled back by the process's end.
        if timeout(LAST, store.close()).await.is_err() {
            tracing::warn!("the store was not closed in time");
        }
        tracing::info!("stopped");
    }
}

async fn join<T>(what: &str, task: JoinHandle<T>, within: Duration) {
    if task.is_finished() {
        return;
    }
    let abort = task.abort_handle();
    if timeout(within, task).await.is_err() {
        tracing::warn!("{what} did not stop in time");
        abort.abort();
    }
}
