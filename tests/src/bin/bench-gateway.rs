//! The gateway under load, beside its floor and a Go server; `scripts/bench gateway` runs it.
//!
//! Handshakes are counted twice. `handshakes_per_s_per_core`, which has a target, is of nodes that connect again, as all do
//! after an outage: the gateway remembers their chains of certificates. `first_handshakes_per_s_per_core` is of nodes that
//! connect for the first time since it started: each chain is verified, one signature more.
//!
//! Heartbeats are counted twice, too. `ratio`, which has a target, is of many connections, each with a request under way at
//! all times: far more than a batch takes, so that what belongs to each has left the CPU's caches by its turn. `few_ratio` is
//! of as many connections as about fill a batch.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hpc_tests::bench::gateway::drive::{self, Stretch, Talker};
use hpc_tests::bench::gateway::floor::{self, Floor, Setting};
use hpc_tests::bench::gateway::host::{allowed_cpus, stolen_ns, usage};
use hpc_tests::bench::gateway::peer::{self, Peer};
use hpc_tests::bench::gateway::world::{self, Wanted, World};
use hpc_tests::bench::gateway::{client, table};
use hpc_tests::scene::{self, Scene};
use serde_json::{Value, json};

/// Heartbeats a second and core, against the floor and a Go server.
#[derive(Parser)]
struct Args {
    /// The Go server, built; without it the daemon is measured alone.
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Nodes on record.
    #[arg(long, default_value_t = 10_000)]
    nodes: usize,
    /// Nodes that speak at once, each on its own connection.
    #[arg(long, default_value_t = 500)]
    connections: usize,
    /// As many of them that speak alone once in each round.
    #[arg(long, default_value_t = 100)]
    few: usize,
    /// Heartbeats of each of them in a stretch.
    #[arg(long, default_value_t = 100)]
    heartbeats: usize,
    /// Stretches of each kind; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Handshakes in a stretch of nodes that connect again; as many nodes connect for the first time in all stretches.
    #[arg(long, default_value_t = 3_000)]
    handshakes: usize,
    /// Seconds between the chain's blocks while heartbeats come: the default of the Cosmos SDK (`timeout_commit`). Nodes are
    /// registered on a faster one.
    #[arg(long, default_value_t = 5)]
    block_seconds: u32,
    /// Seconds between the daemon's transactions.
    #[arg(long, default_value_t = 60)]
    submit_seconds: u32,
    /// CPU of the servers; by default the first that is left of those that this process may use.
    #[arg(long)]
    cpu: Option<u32>,
    /// CPU of everything else, the load generator and the chain; by default the next.
    #[arg(long)]
    load_cpu: Option<u32>,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/gateway.json")]
    out: PathBuf,
    /// Fails where a figure misses its target.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let cpus = Cpus::of(&args)?;
    // Before any thread or child is there, so that all inherit it.
    move_to(cpus.load)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    scene::measure("bench-gateway", |scene, _| {
        let (figures, mut world) = runtime.block_on(measure(&args, cpus, scene))?;
        table::print(&figures)?;
        if let Some(folder) = args.out.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(
            &args.out,
            format!("{}\n", serde_json::to_string_pretty(&figures)?),
        )?;
        println!("written to {}", args.out.display());
        world.site.stop_provider()?;
        let misses = table::misses(&figures);
        if args.check && !misses.is_empty() {
            bail!("beyond target:\n  {}", misses.join("\n  "));
        }
        Ok(())
    })
}

/// Who runs where.
#[derive(Debug, Clone, Copy)]
struct Cpus {
    servers: u32,
    load: u32,
}

impl Cpus {
    fn of(args: &Args) -> Result<Self> {
        let given = [args.cpu, args.load_cpu];
        let free = |cpu: &u32| !given.contains(&Some(*cpu));
        let mut allowed = allowed_cpus()?.into_iter().filter(free);
        let mut next = || {
            allowed
                .next()
                .context("the bench needs two CPUs that it may use (taskset)")
        };
        let servers = args.cpu.map_or_else(&mut next, Ok)?;
        let load = args.load_cpu.map_or_else(&mut next, Ok)?;
        ensure!(servers != load, "--cpu and --load-cpu name the same CPU");
        Ok(Self { servers, load })
    }
}

/// Has this process, which is one thread, run on that CPU.
fn move_to(cpu: u32) -> Result<()> {
    let moved = Command::new("taskset")
        .args(["--pid", "--cpu-list", &cpu.to_string()])
        .arg(std::process::id().to_string())
        .output()
        .context("taskset is missing. Remedy: apt-get install util-linux")?;
    ensure!(
        moved.status.success(),
        "the bench needs two CPUs: {}",
        String::from_utf8_lossy(&moved.stderr)
    );
    Ok(())
}

async fn measure(args: &Args, cpus: Cpus, scene: &Scene) -> Result<(Value, World)> {
    let wanted = Wanted {
        nodes: args.nodes,
        speaking: args.connections,
        new: args.handshakes,
        block_seconds: args.block_seconds,
        submit_seconds: args.submit_seconds,
        cpu: cpus.servers,
    };
    let world = world::start(&wanted, scene).await?;
    let (_, tls) = world.speaking.first().context("no connections")?;
    let mut ours = drive::open(world.address, &world.speaking).await?;
    let mut go = match &args.peer {
        Some(peer) => Some(Go::start(peer, (args, cpus), scene, &world).await?),
        None => None,
    };
    let (mut full, mut few, mut half, mut floors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut shaken = Vec::new();
    let mut new_shaken = Vec::new();
    let mut new = world.new.chunks((world.new.len() / args.rounds.max(1)).max(1));
    let (chain, since) = (world.site.chain.height()?, Instant::now());
    // A first stretch of each warms caches and counts for nothing.
    (_, ours) = stretch(world.pid, ours, args.heartbeats / 4 + 1, None).await?;
    let setting = Setting {
        nodes: world.nodes.get(..960.min(world.nodes.len())).unwrap_or_default(),
        client: Arc::clone(tls),
        server: Arc::clone(&world.server),
        rounds: 5,
    };
    let (both, mut stolen) = ([cpus.servers, cpus.load], Vec::new());
    for round in 1..=args.rounds {
        let (theft, began) = (stolen_ns(both)?, Instant::now());
        // Where the daemon runs, and before and after what is compared with it: CPUs are not as fast in every second.
        let floor = || -> Result<Floor> {
            move_to(cpus.servers)?;
            let floor = floor::measure(&setting);
            move_to(cpus.load)?;
            floor
        };
        let before = floor()?;
        let (one, back) = stretch(world.pid, ours, args.heartbeats, None).await?;
        ours = back;
        let rate = u32::try_from(one.done * 1_000 / u64::try_from(one.took.as_millis())?.max(1))? / 2;
        eprintln!(
            "round {round}: {} heartbeats a CPU second; {} a second with the CPU {} % taken",
            one.per_cpu_second(),
            rate * 2,
            one.cpu_ns / u64::try_from(one.took.as_nanos())?.div_euclid(100).max(1),
        );
        full.push(one);
        floors.push(before.mean(floor()?));
        let silent = ours.split_off(args.few.min(ours.len()));
        let (alone, back) = stretch(world.pid, ours, args.heartbeats * 2, None).await?;
        ours = back.into_iter().chain(silent).collect();
        few.push(alone);
        let (two, back) = stretch(world.pid, ours, args.heartbeats, Some(rate.max(1))).await?;
        ours = back;
        half.push(two);
        if let Some(go) = &mut go {
            go.full(args.heartbeats).await?;
        }
        let shake = async |pid, to, nodes: &[_], count| drive::handshakes(pid, to, nodes, count, 16).await;
        let (nodes, count) = (&world.speaking, args.handshakes);
        // As after an outage: the gateway has met these before.
        shaken.push(shake(world.pid, world.address, nodes, count).await?);
        let first = new.next().context(
            "too few nodes are left that have not spoken: --nodes must be above --connections by --rounds at least",
        )?;
        new_shaken.push(shake(world.pid, world.address, first, first.len()).await?);
        if let Some(go) = &mut go {
            let its = shake(go.peer.process.id(), go.peer.address, nodes, count / 3).await?;
            go.shaken.push(its);
        }
        let theft = stolen_ns(both)?.saturating_sub(theft);
        stolen.push(theft * 1000 / u64::try_from(began.elapsed().as_nanos())?.max(1));
    }
    let blocks = world.site.chain.height()?.saturating_sub(chain);
    let chain = (blocks, since.elapsed());
    let rss = usage(world.pid)?.rss_kib;
    drop(ours);
    if let Some(go) = &mut go {
        go.talkers.clear();
    }
    let all = connect_all(&world).await?;
    let figures = figures(&Measured {
        args,
        full,
        few,
        half,
        shaken,
        new_shaken,
        floors,
        stolen,
        rss,
        all,
        chain,
        go,
    })?;
    Ok((figures, world))
}

/// The Go server, which does the same work.
struct Go {
    peer: Peer,
    talkers: Vec<Talker>,
    full: Vec<Stretch>,
    shaken: Vec<Stretch>,
}

impl Go {
    async fn start(binary: &Path, (args, cpus): (&Args, Cpus), scene: &Scene, world: &World) -> Result<Self> {
        let peer = peer::start(binary, cpus.servers, scene, &world.site, &world.nodes)?;
        let talkers = drive::open(peer.address, &world.speaking).await?;
        let (_, talkers) = stretch(peer.process.id(), talkers, args.heartbeats / 4 + 1, None).await?;
        Ok(Self {
            peer,
            talkers,
            full: Vec::new(),
            shaken: Vec::new(),
        })
    }

    async fn full(&mut self, heartbeats: usize) -> Result<()> {
        let talkers = std::mem::take(&mut self.talkers);
        let (one, back) = stretch(self.peer.process.id(), talkers, heartbeats, None).await?;
        self.talkers = back;
        self.full.push(one);
        Ok(())
    }
}

async fn stretch(
    pid: u32,
    mut talkers: Vec<Talker>,
    heartbeats: usize,
    rate: Option<u32>,
) -> Result<(Stretch, Vec<Talker>)> {
    for talker in &mut talkers {
        talker.prepare(heartbeats)?;
    }
    drive::run(pid, talkers, rate).await
}

/// Every node connects and sends one heartbeat, within a few seconds; the daemon's resident memory in KiB then.
async fn connect_all(world: &World) -> Result<u64> {
    let ca = fs::read_to_string(world.site.home().join("ca/ca.crt"))?;
    let all: Vec<_> = world
        .nodes
        .iter()
        .map(|n| Ok((n.clone(), client::tls(n, &ca)?)))
        .collect::<Result<_>>()?;
    let mut talkers = drive::open(world.address, &all).await?;
    for talker in &mut talkers {
        // Above all that the speaking ones have sent.
        talker.after(1_000_000);
        talker.prepare(1)?;
    }
    // All at the same moment would be told to come again.
    let (stretch, _open) = drive::run(world.pid, talkers, Some(2_000)).await?;
    Ok(stretch.rss_kib)
}

struct Measured<'a> {
    args: &'a Args,
    full: Vec<Stretch>,
    few: Vec<Stretch>,
    half: Vec<Stretch>,
    shaken: Vec<Stretch>,
    new_shaken: Vec<Stretch>,
    floors: Vec<Floor>,
    /// Thousandths of each round that the host took.
    stolen: Vec<u64>,
    rss: u64,
    all: u64,
    /// Blocks made meanwhile, and in what time.
    chain: (u64, Duration),
    go: Option<Go>,
}

fn figures(m: &Measured<'_>) -> Result<Value> {
    let median = |mut values: Vec<u64>| -> Result<u64> {
        values.sort_unstable();
        values.get(values.len() / 2).copied().context("no rounds")
    };
    let of = |all: &[Stretch], f: &dyn Fn(&Stretch) -> u64| median(all.iter().map(f).collect());
    let floor = |f: fn(&Floor) -> u64| median(m.floors.iter().map(f).collect());
    let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
    let rate = of(&m.full, &Stretch::per_cpu_second)?;
    let floor_rate = floor(Floor::per_second)?;
    let rates = |all: &[Stretch]| all.iter().map(Stretch::per_cpu_second).collect::<Vec<_>>();
    let beside = |ours: Vec<u64>, other: Vec<u64>| {
        median(
            (ours.into_iter().zip(other))
                .map(|(r, o)| r * 1000 / o.max(1))
                .collect(),
        )
    };
    let floors = || m.floors.iter().map(Floor::per_second).collect();
    let ratio = beside(rates(&m.full), floors())?;
    let few_ratio = beside(rates(&m.few), floors())?;
    let stretches = [&m.full, &m.half, &m.shaken].into_iter();
    let stretches = stretches.chain(m.go.as_ref().map(|go| &go.full));
    let busy = stretches
        .map(|all| of(all, &|s| s.others_percent))
        .collect::<Result<Vec<_>>>()?;
    let mut figures = json!({
        "nodes": m.args.nodes,
        "connections": m.args.connections,
        "alone": m.go.is_none(),
        "block_s": m.args.block_seconds,
        "blocks": m.chain.0,
        "seconds_per_block": table::thousandths(
            u64::try_from(m.chain.1.as_millis()).unwrap_or(u64::MAX) / m.chain.0.max(1)
        ),
        "heartbeats_per_s_per_core": rate,
        "heartbeats_per_s": of(&m.full, &|s| s.done * 1_000_000 / micros(s.took).max(1))?,
        "cpu_s_per_1000_heartbeats": table::thousandths(1_000_000_000 / rate.max(1)) / 1000.0,
        "floor_per_s_per_core": floor_rate,
        "floor_signatures_us": table::thousandths(floor(|f| f.signatures)?),
        "floor_sha256_us": table::thousandths(floor(|f| f.sha256)?),
        "floor_json_us": table::thousandths(floor(|f| f.json)?),
        "floor_tls_us": table::thousandths(floor(|f| f.tls)?),
        "ratio": table::thousandths(ratio),
        "few_connections": m.args.few,
        "few_per_s_per_core": of(&m.few, &Stretch::per_cpu_second)?,
        "few_ratio": table::thousandths(few_ratio),
        "half_load_per_s": of(&m.half, &|s| s.done * 1_000_000 / micros(s.took).max(1))?,
        "p50_ms": table::thousandths(of(&m.half, &|s| micros(s.latency(500)))?),
        "p99_ms": table::thousandths(of(&m.half, &|s| micros(s.latency(990)))?),
        "half_load_cpu_us": table::thousandths(of(&m.half, &|s| s.cpu_ns / s.done.max(1))?),
        "full_load_p99_ms": table::thousandths(of(&m.full, &|s| micros(s.latency(990)))?),
        "handshakes_per_s_per_core": of(&m.shaken, &Stretch::per_cpu_second)?,
        "first_handshakes_per_s_per_core": of(&m.new_shaken, &Stretch::per_cpu_second)?,
        "rss_mb": table::thousandths(m.rss * 1000 / 1024),
        "rss_all_connected_mb": table::thousandths(m.all * 1000 / 1024),
        "store_bytes_per_heartbeat": of(&m.full, &|s| s.written / s.done.max(1))?,
        "others_busy_percent": median(busy)?,
        "stolen_permille": m.stolen.iter().max().context("no rounds")?,
    });
    if let (Some(go), Some(all)) = (&m.go, figures.as_object_mut()) {
        let ratio = beside(rates(&m.full), rates(&go.full))?;
        let rss = usage(go.peer.process.id())?.rss_kib;
        let theirs = [
            (
                "go_handshakes_per_s_per_core",
                json!(of(&go.shaken, &Stretch::per_cpu_second)?),
            ),
            (
                "go_per_s_per_core",
                json!(of(&go.full, &Stretch::per_cpu_second)?),
            ),
            ("go_ratio", json!(table::thousandths(ratio))),
            ("go_rss_mb", json!(table::thousandths(rss * 1000 / 1024))),
            (
                "go_store_bytes_per_heartbeat",
                json!(of(&go.full, &|s| s.written / s.done.max(1))?),
            ),
        ];
        all.extend(theirs.map(|(name, value)| (name.to_owned(), value)));
    }
    Ok(figures)
}
