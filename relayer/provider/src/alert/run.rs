use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::own::{self, Whose, Written};
use super::parts::Parts;
use super::sink::{Sink, SinkError, sinks};
use super::teller::Teller;
use super::{book, nodes, outbox};
use crate::clock;
use crate::store::StoreError;

/// How often it is looked what is wrong, and whether there is something to tell.
const EVERY: Duration = Duration::from_secs(1);
/// How often nodes are compared with their alerts, and certificates looked at.
const RARELY: Duration = Duration::from_secs(10);
/// What a gateway says of itself ends when it was not heard of for so long.
const SILENT_MS: u64 = 60_000;
/// After so long the chain has had time to answer: what was wrong before a restart, and is not found so, is over.
const LOOKED: Duration = Duration::from_secs(30);
/// How long a stop waits for a delivery.
const LAST: Duration = Duration::from_secs(3);

/// Starts a task that looks what is wrong, and one for each receiver, so that one that hangs keeps nobody waiting.
///
/// # Errors
/// A secret or certificate that cannot be used.
pub fn start(parts: &Parts, stop: &watch::Receiver<bool>) -> Result<Vec<JoinHandle<()>>, SinkError> {
    super::check(&parts.config)?;
    let sinks = sinks(&parts.config)?;
    let receivers = Receivers {
        ids: sinks.iter().map(|s| s.id.clone()).collect(),
        names: sinks.iter().map(|s| s.name.clone()).collect(),
    };
    let (begin, begun) = watch::channel(false);
    let mut tasks = vec![tokio::spawn(look(parts.clone(), receivers, begin, stop.clone()))];
    for sink in sinks {
        tasks.push(tokio::spawn(tell(
            parts.clone(),
            sink,
            begun.clone(),
            stop.clone(),
        )));
    }
    Ok(tasks)
}

/// Those that alerts go to.
struct Receivers {
    ids: Vec<String>,
    /// As troubles name them.
    names: Vec<String>,
}

/// Starts what each of several gateways does for itself, whether or not it settles: its own troubles are written for the one
/// that tells them, and of a store that fails it tells past it.
///
/// # Errors
/// A secret or certificate that cannot be used.
pub fn start_of_each(parts: &Parts, stop: &watch::Receiver<bool>) -> Result<Vec<JoinHandle<()>>, SinkError> {
    super::check(&parts.config)?;
    let mut tasks = vec![tokio::spawn(look_at_own(parts.clone(), stop.clone()))];
    for sink in sinks(&parts.config)? {
        tasks.push(tokio::spawn(tell_directly(parts.clone(), sink, stop.clone())));
    }
    Ok(tasks)
}

async fn look_at_own(parts: Parts, mut stop: watch::Receiver<bool>) {
    let mut written = Written::new(Whose::Each(parts.instance.clone().unwrap_or_default()));
    let mut rarely: Option<Instant> = None;
    let since = Instant::now();
    loop {
        let now = clock::now_ms();
        let looked = parts.health.has_looked() || since.elapsed() >= LOOKED;
        let due = rarely.is_none_or(|at| at.elapsed() >= RARELY);
        if due {
            rarely = Some(Instant::now());
            own::look_at_certificates(&parts.config, &parts.home, &parts.health, now / 1000);
        }
        let turn = async {
            written
                .update(&parts.store, &parts.health.troubles(), looked, now)
                .await?;
            if due {
                written.goes_on(&parts.store, now).await?;
            }
            Ok::<(), StoreError>(())
        };
        if let Err(e) = turn.await {
            tracing::debug!(error = %e, "alerts cannot be written");
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn tell_directly(parts: Parts, sink: Sink, mut stop: watch::Receiver<bool>) {
    let mut teller = Teller::new(parts, sink);
    loop {
        let turn = async {
            teller.past_the_store().await;
            // Nobody else may be able to say it: whoever told alerts last cannot either.
            if teller.is_past_the_store() {
                teller.again_as_told().await;
            }
            sleep(EVERY).await;
        };
        tokio::select! {
            () = turn => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn look(parts: Parts, sinks: Receivers, begin: watch::Sender<bool>, mut stop: watch::Receiver<bool>) {
    let alone = parts.instance.is_none();
    let mut written = Written::new(if alone { Whose::Alone } else { Whose::Site });
    let mut rarely: Option<Instant> = None;
    let mut purged = false;
    let since = Instant::now();
    loop {
        let now = clock::now_ms();
        let looked = parts.health.has_looked() || since.elapsed() >= LOOKED;
        own::look(&parts.config, &parts.metrics, &parts.health);
        let due = rarely.is_none_or(|at| at.elapsed() >= RARELY);
        if due && alone {
            own::look_at_certificates(&parts.config, &parts.home, &parts.health, now / 1000);
        }
        let turn = async {
            if !purged {
                let ids: Vec<&str> = sinks.ids.iter().map(String::as_str).collect();
                outbox::keep_only(&parts.store, &ids).await?;
                own::still_failing(&parts.store, &parts.health, &sinks.names).await?;
            }
            written
                .update(&parts.store, &parts.health.troubles(), looked, now)
                .await?;
            if due {
                nodes::compare(&parts.store, &parts.registry, now).await?;
                let mut tx = parts.store.begin().await?;
                book::end_silent(&mut tx, now.saturating_sub(SILENT_MS), now).await?;
                book::forget(&mut tx, sinks.ids.len(), parts.wait_ms(), now).await?;
                tx.commit().await?;
            }
            Ok::<(), StoreError>(())
        };
        match turn.await {
            Ok(()) => {
                purged = true;
                if looked {
                    begin.send_replace(true);
                }
            }
            Err(e) => tracing::debug!(error = %e, "alerts cannot be written"),
        }
        if due {
            rarely = Some(Instant::now());
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
}

async fn tell(parts: Parts, sink: Sink, mut begun: watch::Receiver<bool>, mut stop: watch::Receiver<bool>) {
    let mut teller = Teller::new(parts, sink);
    // What the store says of the time before a restart may be over.
    loop {
        tokio::select! {
            () = teller.alone_past_the_store() => {}
            _ = stop.wait_for(|s| *s) => return,
        }
        tokio::select! {
            _ = begun.wait_for(|b| *b) => break,
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => return,
        }
    }
    loop {
        let more = tokio::select! {
            more = teller.turn() => more,
            // What is under way may still arrive; if not, it goes again after the start.
            _ = stop.wait_for(|s| *s) => break,
        };
        if more {
            continue;
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = stop.wait_for(|s| *s) => break,
        }
    }
    drop(timeout(LAST, teller.turn()).await);
}
