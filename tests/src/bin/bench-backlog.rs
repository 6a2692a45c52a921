//! The chain stands still while a site's nodes go on reporting; `scripts/bench backlog` runs it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hpc_tests::bench::fleet;
use hpc_tests::bench::gateway::known::{self, Known};
use hpc_tests::bench::gateway::traffic::Traffic;
use hpc_tests::chain::Kind;
use hpc_tests::ledger::{Ledger, Name};
use hpc_tests::process;
use hpc_tests::scene::{self, Scene};
use hpc_tests::site::Site;
use serde_json::{Value, json};

/// Ten thousand nodes, a chain that stands still for ten minutes.
#[derive(Parser)]
struct Args {
    /// Nodes that report.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Seconds between a node's heartbeats.
    #[arg(long, default_value_t = 30)]
    interval: u64,
    /// Seconds that the chain stands still.
    #[arg(long, default_value_t = 600)]
    outage: u64,
    /// A look of a minute: 500 nodes every 10 s, an outage of 20 s.
    #[arg(long)]
    short: bool,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/backlog.json")]
    out: PathBuf,
}

/// `batch.submit_interval`, seconds: the daemon's default.
const BATCH_SECONDS: u64 = 60;
/// Seconds that the daemon may take to get below that once the chain is back.
const RECOVERY_SECONDS: u64 = 120;
/// What the store may have on disk for each node, KiB, about: the report that waits with its full heartbeat, and its section
/// (5); the node as the chain has it, and when it was heard of (2); two heartbeats that came on chain before the halt, kept for
/// proofs, with their ends (7); the room that SQLite leaves in pages and indexes (6). A node sends twenty heartbeats in the
/// halt: a store that kept them all would be far beyond.
const KIB_A_NODE: u64 = 20;
/// What it may have however few nodes there are, KiB: SQLite's journal until a commit copies it (64 MiB) with what is written
/// meanwhile, and the two intake journals, which turn after 1 MiB and are in the database within seconds.
const KIB_FIXED: u64 = 80 * 1024;
/// From so many seconds of the halt on the store has what it needs, and may not grow by more than so many percent: of a halt
/// that is no longer there is no such figure.
const FULL_SECONDS: u64 = 180;
const GROWTH_PERCENT: u64 = 10;

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.short {
        (args.nodes, args.interval, args.outage) = (500, 10, 20);
    }
    scene::measure("bench-backlog", |scene, _| {
        let figures = measure(&args, scene)?;
        for (name, value) in figures.as_object().context("no figures")? {
            println!("{name:<34} {value:>12}");
        }
        if let Some(folder) = args.out.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(
            &args.out,
            format!("{}\n", serde_json::to_string_pretty(&figures)?),
        )?;
        println!("written to {}", args.out.display());
        Ok(())
    })
}

/// The daemon as its metrics and its files show it.
#[derive(Debug, Default, Clone, Copy)]
struct Look {
    waiting: u64,
    bound: u64,
    oldest_seconds: u64,
    store: Files,
}

/// The store on disk, bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Files {
    database: u64,
    /// SQLite's journal and its index.
    wal: u64,
    /// What was accepted and is not in the database yet.
    intake: u64,
}

impl Files {
    fn of(folder: &Path) -> Result<Self> {
        let mut sum = Self::default();
        for file in fs::read_dir(folder)? {
            let file = file?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            let kind = if name.ends_with(".journal") {
                &mut sum.intake
            } else if name.ends_with("-wal") || name.ends_with("-shm") {
                &mut sum.wal
            } else {
                &mut sum.database
            };
            *kind += file.metadata()?.len();
        }
        Ok(sum)
    }

    fn bytes(self) -> u64 {
        self.database + self.wal + self.intake
    }

    fn kib(self) -> u64 {
        self.bytes() / 1024
    }

    /// Of the two the one that is larger as a whole.
    fn most(self, other: Self) -> Self {
        if other.bytes() > self.bytes() { other } else { self }
    }
}

impl Look {
    fn most(self, other: Self) -> Self {
        Self {
            waiting: self.waiting.max(other.waiting),
            bound: self.bound.max(other.bound),
            oldest_seconds: self.oldest_seconds.max(other.oldest_seconds),
            store: self.store.most(other.store),
        }
    }
}

fn look(site: &Site) -> Result<Look> {
    let url = format!("http://127.0.0.1:{}/metrics", site.ops_port());
    let text = process::output(Command::new("curl").args(["-sf", "--max-time", "10", &url]))?;
    let of = |name: &str| -> Result<u64> {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(&format!("virtengine_provider_{name} ")));
        Ok(line
            .with_context(|| format!("no metric {name}"))?
            .trim()
            .parse()?)
    };
    Ok(Look {
        waiting: of("reports_waiting")?,
        bound: of("reports_bound")?,
        oldest_seconds: of("oldest_unsettled_seconds")?,
        store: Files::of(&site.home().join("store"))?,
    })
}

fn measure(args: &Args, scene: &Scene) -> Result<Value> {
    let mut site = Site::prepare(scene, Kind::Embedded)?;
    site.activate()?;
    for (key, value) in [
        ("BATCH__SUBMIT_INTERVAL", "60s"),
        ("CHAIN__SYNC", "5s"),
        ("CHAIN__POLL", "1s"),
    ] {
        site.set(key, value);
    }
    eprintln!("registering {} nodes", args.nodes);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let nodes = runtime.block_on(known::register(&site, args.nodes))?;
    // A token makes the daemon serve the cluster; it finds the nodes on the chain.
    let key = fleet::public(&nodes.first().context("no nodes")?.key)?;
    site.token("node-unused", &key.to_base64(), "1h")?;
    site.start_provider()?;
    let ca = fs::read_to_string(site.home().join("ca/ca.crt"))?;
    let to = SocketAddr::from(([127, 0, 0, 1], site.gateway_port()));
    let interval = Duration::from_secs(args.interval);
    let traffic = Traffic::start(to, &nodes, &ca, interval)?;

    eprintln!("all nodes report for two intervals");
    let steady = watch(&site, interval * 2, |_| false)?.1;
    let before = traffic.seen.accepted.load(Ordering::Relaxed);
    ensure!(
        before >= u64::try_from(args.nodes)?,
        "{before} heartbeats accepted of {} nodes: {}",
        args.nodes,
        traffic.seen.last.lock().unwrap_or_else(PoisonError::into_inner)
    );
    site.chain.kill()?;
    eprintln!("the chain stands still for {} s", args.outage);
    let full = args.outage.min(FULL_SECONDS);
    let early = watch(&site, Duration::from_secs(full), |_| false)?.1;
    let rest = args.outage - full;
    let late = watch(&site, Duration::from_secs(rest), |_| false)?.1;
    let end = look(&site)?.store;
    let outage = early.most(late);
    site.chain.resume()?;
    eprintln!("the chain is back");
    let limit = Duration::from_secs(RECOVERY_SECONDS);
    let calm = |l: Look| l.oldest_seconds < BATCH_SECONDS.min(args.outage);
    let (recovery, after) = watch(&site, limit, calm)?;
    ensure!(
        recovery < limit,
        "after {RECOVERY_SECONDS} s a report still waits for longer than a batch's interval: {after:?}"
    );
    let seen = std::sync::Arc::clone(&traffic.seen);
    let last = traffic.stop()?;
    watch(&site, Duration::from_secs(BATCH_SECONDS + 60), |l| {
        l.waiting + l.bound == 0
    })?;
    let (applied, blocks) = counted(&site, &nodes, &last)?;
    let nodes_count = u64::try_from(args.nodes)?;
    for (what, most) in [("wait", outage.waiting), ("are under way", outage.bound)] {
        ensure!(
            most <= nodes_count,
            "{most} reports of {nodes_count} nodes {what}"
        );
    }
    let grown = late.store.bytes().saturating_sub(early.store.bytes());
    let growth_percent = (grown * 100).div_ceil(early.store.bytes().max(1));
    let kib_most = KIB_FIXED + KIB_A_NODE * nodes_count;
    ensure!(
        end.kib() <= kib_most,
        "the store has {} KiB at the end of the halt, target {kib_most}: {end:?}",
        end.kib()
    );
    ensure!(
        growth_percent <= GROWTH_PERCENT,
        "the store grew by {growth_percent} % after {full} s of the halt, target {GROWTH_PERCENT}: {:?}, then {:?}",
        early.store,
        late.store
    );
    let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    Ok(json!({
        "nodes": args.nodes,
        "interval_s": args.interval,
        "outage_s": args.outage,
        "accepted": count(&seen.accepted),
        "refused": count(&seen.refused),
        "connections_broken": count(&seen.broken),
        "slowest_answer_ms": count(&seen.slowest_us) / 1000,
        "store_kib_steady": steady.store.kib(),
        "store_kib_outage": outage.store.kib(),
        "store_kib_end": end.kib(),
        "store_kib_end_target": kib_most,
        "store_kib_end_database": end.database / 1024,
        "store_kib_end_wal": end.wal / 1024,
        "store_kib_end_intake": end.intake / 1024,
        "store_bytes_a_node_end": end.bytes() / nodes_count.max(1),
        "store_growth_percent": (rest > 0).then_some(growth_percent),
        "store_growth_percent_target": (rest > 0).then_some(GROWTH_PERCENT),
        "waiting_most": outage.waiting,
        "bound_most": outage.bound,
        "oldest_s_steady": steady.oldest_seconds,
        "oldest_s_outage": outage.oldest_seconds,
        "recovery_s": recovery.as_secs(),
        "applied_on_chain": applied,
        "applied_twice": 0,
        "blocks": blocks,
    }))
}

/// Looks every second until it is calm or the time is over; how long that took, and the most of everything.
fn watch(site: &Site, limit: Duration, calm: impl Fn(Look) -> bool) -> Result<(Duration, Look)> {
    let (began, mut most) = (Instant::now(), Look::default());
    while began.elapsed() < limit {
        std::thread::sleep(Duration::from_secs(1));
        let now = look(site)?;
        most = most.most(now);
        if calm(now) {
            return Ok((began.elapsed(), most));
        }
    }
    Ok((limit, most))
}

/// Reports that took effect, none twice, every node's newest among them; and the blocks that were read.
fn counted(site: &Site, nodes: &[Known], last: &[u32]) -> Result<(usize, u64)> {
    let ledger = Ledger::read(&site.chain.rpc(), &site.contract)?;
    let applied = ledger.applied_once()?;
    let mut newest = std::collections::BTreeMap::new();
    for Name { node, sequence, .. } in ledger.names() {
        let highest = newest.entry(node.as_str()).or_insert(0u32);
        *highest = (*highest).max(*sequence);
    }
    for (node, accepted) in nodes.iter().zip(last) {
        let on_chain = newest.get(node.id.as_str()).copied().unwrap_or(0);
        if on_chain != *accepted {
            bail!(
                "{}: {accepted} was accepted last, {on_chain} is the newest on chain",
                node.id
            );
        }
    }
    Ok((applied, ledger.blocks()))
}
