use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use super::{load, log};
use crate::daemon::Daemon;
use crate::home::Home;

/// Runs until a signal; stops gracefully, at the second signal at once.
pub(super) async fn run(home: Home) -> anyhow::Result<()> {
    let config = load(&home)?;
    log::start(&config.log)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut daemon = Daemon::start(home, config).await?;
    notify(&[NotifyState::Ready]);
    tokio::select! {
        e = daemon.failed() => {
            tracing::error!(error = %e, "stopping");
            daemon.stop().await;
            return Err(e.into());
        }
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    notify(&[NotifyState::Stopping]);
    tokio::select! {
        () = daemon.stop() => Ok(()),
        _ = terminate.recv() => anyhow::bail!("stopped at once by a second signal; the next start goes on"),
        _ = interrupt.recv() => anyhow::bail!("stopped at once by a second signal; the next start goes on"),
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::debug!(error = %e, "no service manager to notify");
    }
}
