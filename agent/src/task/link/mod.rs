//! The part of the task domain that speaks with the gateway: a process apart, without rights on the host. It brings
//! tasks as they come, and carries results; whether a task counts is judged behind the pipe.

mod identity;
mod report;
mod wait;
mod way;
mod wire;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, watch};

use super::domain::{Input, Output};
use crate::clock::Clock;
use crate::config::Config;
use identity::Identities;

pub use wire::{MAX_LINE, read_line, write_line};

/// Words that wait to be carried.
const QUEUE: usize = 512;

/// Why the link cannot be.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The node is not registered.
    #[error("this node is not registered; run virtengine-node-agent register")]
    NotRegistered,
    /// IO.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] crate::uplink::TlsError),
}

/// Speaks with the gateway until `said` ends: words of the domain come in by `said`, words for it go out by `tell`.
///
/// # Errors
/// See [`LinkError`].
pub async fn run(
    config: Config,
    clock: Clock,
    said: mpsc::Receiver<Output>,
    tell: mpsc::Sender<Input>,
) -> Result<(), LinkError> {
    let identities = Arc::new(Mutex::new(Identities::load(&config, &clock)?));
    let node = identities.lock().await.node_id().clone();
    let (stop, stopped) = watch::channel(false);
    let way = || way::Way::new(&config, Arc::clone(&identities));
    let waiting = wait::Wait::new(node.clone(), way(), tell.clone());
    let mut waiting = tokio::spawn(async move {
        let mut stopped = stopped;
        tokio::select! {
            () = waiting.run() => {}
            _ = stopped.wait_for(|s| *s) => {}
        }
    });
    tokio::select! {
        () = report::Reports::new(node, way(), tell).run(said) => {}
        // In vain for long: a fresh process has a fresh jail, with the files as they are now.
        _ = &mut waiting => return Ok(()),
    }
    stop.send_replace(true);
    // It ends at its next await.
    waiting.await.ok();
    Ok(())
}

/// The way of words between the two processes: one JSON a line.
///
/// # Errors
/// See [`LinkError`].
pub async fn serve_pipes(config: Config) -> Result<(), LinkError> {
    let (said_in, said) = mpsc::channel(QUEUE);
    let (tell, mut told) = mpsc::channel::<Input>(QUEUE);
    let reader = tokio::task::spawn_blocking(move || {
        let mut stdin = std::io::BufReader::new(std::io::stdin());
        // An end, or a line that is none: the other side is gone.
        while let Ok(Some(output)) = read_line::<Output>(&mut stdin) {
            if said_in.blocking_send(output).is_err() {
                return;
            }
        }
    });
    let writer = tokio::task::spawn_blocking(move || {
        let mut stdout = std::io::stdout();
        while let Some(input) = told.blocking_recv() {
            if write_line(&mut stdout, &input).is_err() {
                return;
            }
        }
    });
    let result = run(config, Clock::system(), said, tell).await;
    writer.abort();
    reader.abort();
    result
}
