use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::log::Level;
use super::{load, log};
use crate::config::Live;
use crate::daemon::{Alive, Daemon};
use crate::home::Home;

/// Runs until a signal; stops gracefully, at the second signal at once.
pub(super) async fn run(home: Home) -> anyhow::Result<()> {
    let config = load(&home)?;
    let level = log::start(&config.log)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let reread = home.clone();
    let reread = move || load(&reread).map_err(|e| e.to_string());
    let mut daemon = Box::pin(Daemon::start_rereading(home, config, Some(Arc::new(reread)))).await?;
    let relevelled = tokio::spawn(follow_level(daemon.live().clone(), level));
    notify(&[NotifyState::Ready]);
    // Until the process ends: a stop takes its time as well.
    let watched = tokio::spawn(watchdog(daemon.alive()));
    let failed = loop {
        tokio::select! {
            e = daemon.failed() => {
                tracing::error!(error = %e, "stopping");
                break Some(e);
            }
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            // What is wrong is in the log and in `readyz`; the daemon goes on as it was.
            _ = hangup.recv() => drop(daemon.reload().await),
        }
    };
    // The unit's own limit may be shorter than the budgets of the configuration.
    let budget = u32::try_from(daemon.stop_budget().as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::ExtendTimeoutUsec(budget), NotifyState::Stopping]);
    let stopped = tokio::select! {
        () = daemon.stop() => Ok(()),
        _ = terminate.recv() => Err(anyhow::anyhow!("stopped at once by a second signal; the next start goes on")),
        _ = interrupt.recv() => Err(anyhow::anyhow!("stopped at once by a second signal; the next start goes on")),
    };
    watched.abort();
    relevelled.abort();
    failed.map_or(stopped, |e| Err(e.into()))
}

/// Logs at the level of the configuration in force.
async fn follow_level(live: Live, level: Level) {
    let mut changes = live.changes();
    while changes.changed().await.is_ok() {
        level.set(&live.get().log.level);
    }
}

/// Tells the service manager that the daemon works, as long as it does; nothing without `WatchdogSec=`.
async fn watchdog(alive: Alive) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut stuck = false;
    loop {
        let works = alive.check().await;
        if works {
            notify(&[NotifyState::Watchdog]);
        } else if !stuck {
            tracing::error!("the store does not answer; the service manager is not told that all is well");
        }
        stuck = !works;
        sleep(period / 3).await;
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::debug!(error = %e, "no service manager to notify");
    }
}
