//! Nodes that report at their interval for as long as they are asked to, each on a connection that it keeps.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::client::{self, Connection};
use super::heartbeats;
use super::known::Known;

/// How often a node looks whether it should stop.
const LOOK: Duration = Duration::from_millis(500);

/// What the nodes have seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Heartbeats that were answered `accepted`.
    pub accepted: AtomicU64,
    /// Heartbeats that were answered otherwise.
    pub refused: AtomicU64,
    /// Connections that broke.
    pub broken: AtomicU64,
    /// The slowest answer, in microseconds.
    pub slowest_us: AtomicU64,
    /// What the last refusal or error said.
    pub last: Mutex<String>,
}

/// Traffic on a thread of its own.
#[derive(Debug)]
pub struct Traffic {
    /// What it has seen so far.
    pub seen: Arc<Seen>,
    /// Each node's highest accepted sequence.
    pub sequences: Arc<Vec<AtomicU32>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Traffic {
    /// Starts: each node's first heartbeat comes at its own moment of the first interval.
    ///
    /// # Errors
    /// If a certificate cannot be used.
    pub fn start(to: SocketAddr, nodes: &[Known], ca_pem: &str, interval: Duration) -> Result<Self> {
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let sequences: Arc<Vec<AtomicU32>> = Arc::new(nodes.iter().map(|_| AtomicU32::new(0)).collect());
        let nodes: Vec<(Known, Arc<ClientConfig>)> = nodes
            .iter()
            .map(|n| Ok((n.clone(), client::tls(n, ca_pem)?)))
            .collect::<Result<_>>()?;
        let (its_seen, its_stop, its_sequences) =
            (Arc::clone(&seen), Arc::clone(&stop), Arc::clone(&sequences));
        let thread = thread::Builder::new().name("traffic".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async move {
                let (began, count) = (Instant::now(), u32::try_from(nodes.len())?);
                let mut tasks = JoinSet::new();
                for ((number, place), (node, tls)) in (0u32..).zip(0usize..).zip(nodes) {
                    let talk = Talk {
                        to,
                        node,
                        tls,
                        interval,
                        first: began + interval * number / count.max(1),
                        place,
                    };
                    let (seen, stop, sequences) = (
                        Arc::clone(&its_seen),
                        Arc::clone(&its_stop),
                        Arc::clone(&its_sequences),
                    );
                    tasks.spawn(async move { talk.run(&seen, &stop, &sequences).await });
                }
                while let Some(ended) = tasks.join_next().await {
                    ended??;
                }
                Ok(())
            })
        })?;
        Ok(Self {
            seen,
            sequences,
            stop,
            thread,
        })
    }

    /// Ends it once every answer under way has come.
    ///
    /// # Errors
    /// If a heartbeat could not be made.
    pub fn stop(self) -> Result<Vec<u32>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("the traffic's thread panicked"))??;
        Ok(self.sequences.iter().map(|s| s.load(Ordering::Relaxed)).collect())
    }
}

struct Talk {
    to: SocketAddr,
    node: Known,
    tls: Arc<ClientConfig>,
    interval: Duration,
    first: Instant,
    place: usize,
}

impl Talk {
    async fn run(self, seen: &Seen, stop: &AtomicBool, sequences: &[AtomicU32]) -> Result<()> {
        let (mut at, mut sequence, mut open) = (self.first, 0u32, None);
        loop {
            while Instant::now() < at {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                sleep_until(at.min(Instant::now() + LOOK).into()).await;
            }
            at += self.interval;
            sequence += 1;
            let request = heartbeats::request(&self.node, sequence)?;
            let began = Instant::now();
            match self.ask(&mut open, &request).await {
                Ok(None) => {
                    seen.accepted.fetch_add(1, Ordering::Relaxed);
                    if let Some(highest) = sequences.get(self.place) {
                        highest.store(sequence, Ordering::Relaxed);
                    }
                }
                Ok(Some(answer)) => {
                    seen.refused.fetch_add(1, Ordering::Relaxed);
                    *seen.last.lock().unwrap_or_else(PoisonError::into_inner) = answer;
                }
                Err(e) => {
                    // The next heartbeat opens another.
                    open = None;
                    seen.broken.fetch_add(1, Ordering::Relaxed);
                    *seen.last.lock().unwrap_or_else(PoisonError::into_inner) = format!("{e:#}");
                }
            }
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            seen.slowest_us.fetch_max(took, Ordering::Relaxed);
        }
    }

    /// Nothing if the heartbeat was accepted, else the answer.
    async fn ask(&self, open: &mut Option<Connection>, request: &[u8]) -> Result<Option<String>> {
        let connection = match open {
            Some(connection) => connection,
            None => open.insert(Connection::open(self.to, Arc::clone(&self.tls)).await?),
        };
        let accepted = connection.ask(request).await?;
        Ok((!accepted).then(|| connection.last()))
    }
}
