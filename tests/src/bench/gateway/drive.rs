//! Drives a server: as fast as it answers, or at a set rate, or handshake after handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::client::Connection;
use super::heartbeats;
use super::host::{Usage, machine_busy_ns, usage};
use super::known::Known;

/// A node with an open connection and heartbeats that are signed already: signing is no part of what is measured.
#[derive(Debug)]
pub struct Talker {
    node: Known,
    connection: Connection,
    sequence: u32,
    ready: Vec<Vec<u8>>,
}

/// What a stretch of load cost the server.
#[derive(Debug, Clone)]
pub struct Stretch {
    /// Heartbeats accepted, or handshakes made.
    pub done: u64,
    /// How long it took.
    pub took: Duration,
    /// The server's time on a CPU, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes that the server sent to the disk.
    pub written: u64,
    /// Its resident memory at the end, in KiB.
    pub rss_kib: u64,
    /// Time from each request to its answer, sorted.
    pub latencies: Vec<Duration>,
    /// Time that others kept a CPU busy, as a share of the stretch in per cent of one CPU.
    pub others_percent: u64,
}

impl Stretch {
    /// What of these a CPU does in a second of its time.
    #[must_use]
    pub fn per_cpu_second(&self) -> u64 {
        self.done.saturating_mul(1_000_000_000) / self.cpu_ns.max(1)
    }

    /// The latency that so many thousandths stay below.
    #[must_use]
    pub fn latency(&self, permille: usize) -> Duration {
        let at = (self.latencies.len() * permille / 1000).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).copied().unwrap_or_default()
    }
}

/// Opens a connection for each node.
///
/// # Errors
/// If one is refused.
pub async fn open(to: SocketAddr, nodes: &[(Known, Arc<ClientConfig>)]) -> Result<Vec<Talker>> {
    let mut talkers = Vec::new();
    for (node, tls) in nodes {
        let connection = Connection::open(to, Arc::clone(tls)).await;
        talkers.push(Talker {
            connection: connection.with_context(|| format!("the connection of {}", node.id))?,
            node: node.clone(),
            sequence: 0,
            ready: Vec::new(),
        });
    }
    Ok(talkers)
}

impl Talker {
    /// Goes on after this sequence.
    pub fn after(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// Sequence of its last heartbeat.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Signs so many heartbeats ahead.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn prepare(&mut self, count: usize) -> Result<()> {
        self.ready.clear();
        for _ in 0..count {
            self.sequence += 1;
            self.ready.push(heartbeats::request(&self.node, self.sequence)?);
        }
        self.ready.reverse();
        Ok(())
    }

    async fn send(&mut self) -> Result<Option<Duration>> {
        let Some(request) = self.ready.pop() else {
            return Ok(None);
        };
        let began = Instant::now();
        let accepted = self.connection.ask(&request).await?;
        ensure!(accepted, "not accepted: {}", self.connection.last());
        Ok(Some(began.elapsed()))
    }
}

/// Sends all that is prepared. `rate` is in heartbeats a second of all talkers together; without it each sends its next
/// when the last is answered. Talkers come back for the next stretch.
///
/// # Errors
/// If a heartbeat is not accepted.
pub async fn run(pid: u32, talkers: Vec<Talker>, rate: Option<u32>) -> Result<(Stretch, Vec<Talker>)> {
    let start = Start::new(pid)?;
    let began = start.began;
    let (mut tasks, count) = (JoinSet::new(), u32::try_from(talkers.len())?);
    for (number, mut talker) in (0u32..).zip(talkers) {
        tasks.spawn(async move {
            let mut latencies = Vec::with_capacity(talker.ready.len());
            // At a rate each has its turn, spread over the time in between.
            let between = rate.map(|rate| Duration::from_secs(u64::from(count)) / rate);
            let mut at = began + between.unwrap_or_default() * number / count.max(1);
            loop {
                if let Some(between) = between {
                    sleep_until(at.into()).await;
                    at += between;
                }
                match talker.send().await? {
                    Some(latency) => latencies.push(latency),
                    None => return Ok::<_, anyhow::Error>((talker, latencies)),
                }
            }
        });
    }
    let (mut talkers, mut latencies) = (Vec::new(), Vec::new());
    while let Some(ended) = tasks.join_next().await {
        let (talker, its) = ended??;
        talkers.push(talker);
        latencies.extend(its);
    }
    latencies.sort_unstable();
    let done = u64::try_from(latencies.len())?;
    let stretch = start.stretch(done, latencies)?;
    Ok((stretch, talkers))
}

/// Shakes hands `count` times, `width` at once, each connection closed before the next and of the next node.
///
/// # Errors
/// If one fails.
pub async fn handshakes(
    pid: u32,
    to: SocketAddr,
    nodes: &[(Known, Arc<ClientConfig>)],
    count: usize,
    width: usize,
) -> Result<Stretch> {
    let start = Start::new(pid)?;
    let left = Arc::new(AtomicUsize::new(count));
    let all: Arc<Vec<_>> = Arc::new(nodes.iter().map(|(_, tls)| Arc::clone(tls)).collect());
    let mut tasks = JoinSet::new();
    for _ in 0..width {
        let (left, all) = (Arc::clone(&left), Arc::clone(&all));
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            while let Ok(n) = next() {
                let tls = all.get(n % all.len().max(1)).context("no nodes")?;
                let began = Instant::now();
                Connection::open(to, Arc::clone(tls)).await?.close().await?;
                latencies.push(began.elapsed());
            }
            Ok::<_, anyhow::Error>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        latencies.extend(ended??);
    }
    latencies.sort_unstable();
    let done = u64::try_from(latencies.len())?;
    start.stretch(done, latencies)
}

/// How things were as a stretch began.
struct Start {
    pid: u32,
    server: Usage,
    own: Usage,
    busy_ns: u64,
    began: Instant,
}

impl Start {
    fn new(pid: u32) -> Result<Self> {
        Ok(Self {
            pid,
            server: usage(pid)?,
            own: usage(std::process::id())?,
            busy_ns: machine_busy_ns()?,
            began: Instant::now(),
        })
    }

    fn stretch(&self, done: u64, latencies: Vec<Duration>) -> Result<Stretch> {
        let took = self.began.elapsed();
        let (after, own) = (usage(self.pid)?, usage(std::process::id())?);
        if done == 0 {
            bail!("nothing was done");
        }
        let cpu_ns = after.cpu_ns.saturating_sub(self.server.cpu_ns);
        let ours = cpu_ns + own.cpu_ns.saturating_sub(self.own.cpu_ns);
        let busy = machine_busy_ns()?.saturating_sub(self.busy_ns);
        let nanos = u64::try_from(took.as_nanos())?.max(1);
        Ok(Stretch {
            done,
            took,
            cpu_ns,
            written: after.written.saturating_sub(self.server.written),
            rss_kib: after.rss_kib,
            latencies,
            others_percent: busy.saturating_sub(ours).saturating_mul(100) / nanos,
        })
    }
}
