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
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hpc_tests::bench::fleet;
use hpc_tests::bench::gateway::drive::{self, Stretch, Talker};
use hpc_tests::bench::gateway::floor::{self, Floor, Setting};
use hpc_tests::bench::gateway::host::{stolen_ns, usage};
use hpc_tests::bench::gateway::known::{self, Known};
use hpc_tests::bench::gateway::peer::{self, Peer};
use hpc_tests::bench::gateway::{client, table};
use hpc_tests::chain::Kind;
use hpc_tests::scene::{self, Scene};
use hpc_tests::site::Site;
use rustls::{ClientConfig, ServerConfig};
use serde_json::{Value, json};
use virtengine_provider::clock;
use virtengine_provider::gateway::{ServerCertificate, server_config};
use virtengine_provider::identity::{Anchors, Ca};

/// Heartbeats a second and core, against the floor and a Go server.
#[derive(Parser)]
struct Args {
    /// The Go server, built.
    #[arg(long)]
    peer: PathBuf,
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
    /// Time between the chain's blocks while heartbeats come: the default of the Cosmos SDK (`timeout_commit`). Nodes are
    /// registered on a faster one.
    #[arg(long, default_value = "5s")]
    block_time: String,
    /// CPU of the servers; the load generator and the chain get another.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// CPU of everything else.
    #[arg(long, default_value_t = 1)]
    load_cpu: u32,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/gateway.json")]
    out: PathBuf,
    /// Fails where a figure misses its target.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // Before any thread or child is there, so that all inherit it.
    move_to(args.load_cpu)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    scene::measure("bench-gateway", |scene, _| {
        let figures = runtime.block_on(measure(&args, scene))?;
        table::print(&figures)?;
        if let Some(folder) = args.out.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(
            &args.out,
            format!("{}\n", serde_json::to_string_pretty(&figures)?),
        )?;
        println!("written to {}", args.out.display());
        let misses = table::misses(&figures);
        if args.check && !misses.is_empty() {
            bail!("beyond target:\n  {}", misses.join("\n  "));
        }
        Ok(())
    })
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

/// The daemon with its nodes, and how to talk to it.
struct World {
    site: Site,
    pid: u32,
    address: SocketAddr,
    nodes: Vec<Known>,
    /// Those that speak, spread over all pages.
    speaking: Vec<(Known, Arc<ClientConfig>)>,
    /// Others, which the gateway has not met yet.
    new: Vec<(Known, Arc<ClientConfig>)>,
    server: Arc<ServerConfig>,
}

async fn world(args: &Args, scene: &Scene) -> Result<World> {
    let mut site = Site::prepare(scene, Kind::Embedded)?;
    site.activate()?;
    // Nodes here speak far more often than the protocol asks for; everything else is as delivered.
    site.set("GATEWAY__REQUESTS_PER_MINUTE", "60000");
    // They are silent while the others are measured.
    site.set("GATEWAY__IDLE_TIMEOUT", "1h");
    site.set("BATCH__SUBMIT_INTERVAL", "60s");
    site.set("CHAIN__SYNC", "5s");
    site.set("CHAIN__POLL", "1s");
    site.set("LOG__LEVEL", "warn");
    site.pin(args.cpu);
    eprintln!("registering {} nodes", args.nodes);
    let nodes = known::register(&site, args.nodes).await?;
    site.chain.set_block_time(&args.block_time)?;
    // Elsewhere it has a machine of its own: here its blocks must not keep the generator from hearing an answer.
    site.chain.give_way()?;
    let first = nodes.first().context("no nodes")?;
    // A token makes the daemon serve the cluster; it finds the nodes on the chain.
    site.token("node-unused", &fleet::public(&first.key)?.to_base64(), "1h")?;
    site.start_provider()?;
    let pid = site.provider()?.id();
    let ca_pem = fs::read_to_string(site.home().join("ca/ca.crt"))?;
    let step = (nodes.len() / args.connections.max(1)).max(1);
    let with_tls = |n: &Known| -> Result<_> { Ok((n.clone(), client::tls(n, &ca_pem)?)) };
    let speaking = nodes
        .iter()
        .step_by(step)
        .take(args.connections)
        .map(with_tls)
        .collect::<Result<_>>()?;
    let new = (nodes.iter().enumerate())
        .filter(|(n, _)| n % step != 0 || n / step >= args.connections)
        .take(args.handshakes)
        .map(|(_, n)| with_tls(n))
        .collect::<Result<_>>()?;
    let read = |name: &str| fs::read_to_string(site.home().join(name));
    let ca = Ca::from_pem(&ca_pem, &read("ca/ca.key")?)?;
    let anchors = Anchors::load(&ca, &site.home().join("ca/trusted"), clock::now())?;
    let certificate = ServerCertificate::new(&read("gateway/server.crt")?, &read("gateway/server.key")?)?;
    Ok(World {
        address: SocketAddr::from(([127, 0, 0, 1], site.gateway_port())),
        server: Arc::new(server_config(&anchors, Arc::new(certificate))?),
        site,
        pid,
        nodes,
        speaking,
        new,
    })
}

async fn measure(args: &Args, scene: &Scene) -> Result<Value> {
    let world = world(args, scene).await?;
    let peer = peer::start(&args.peer, args.cpu, scene, &world.site, &world.nodes)?;
    let (_, tls) = world.speaking.first().context("no connections")?;
    let mut ours = drive::open(world.address, &world.speaking).await?;
    let mut theirs = drive::open(peer.address, &world.speaking).await?;
    let (mut full, mut go, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let (mut half, mut shaken, mut go_shaken) = (Vec::new(), Vec::new(), Vec::new());
    let mut few = Vec::new();
    let mut new_shaken = Vec::new();
    let mut new = world.new.chunks((world.new.len() / args.rounds.max(1)).max(1));
    let (chain, since) = (world.site.chain.height()?, Instant::now());
    // A first stretch of each warms caches and counts for nothing.
    (_, ours) = stretch(world.pid, ours, args.heartbeats / 4 + 1, None).await?;
    (_, theirs) = stretch(peer.process.id(), theirs, args.heartbeats / 4 + 1, None).await?;
    let setting = Setting {
        nodes: world.nodes.get(..960.min(world.nodes.len())).unwrap_or_default(),
        client: Arc::clone(tls),
        server: Arc::clone(&world.server),
        rounds: 5,
    };
    let (cpus, mut stolen) = ([args.cpu, args.load_cpu], Vec::new());
    for round in 1..=args.rounds {
        let (theft, began) = (stolen_ns(cpus)?, Instant::now());
        // Where the daemon runs, and before and after what is compared with it: CPUs are not as fast in every second.
        let floor = || -> Result<Floor> {
            move_to(args.cpu)?;
            let floor = floor::measure(&setting);
            move_to(args.load_cpu)?;
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
        let (three, back) = stretch(peer.process.id(), theirs, args.heartbeats, None).await?;
        theirs = back;
        go.push(three);
        let shake = async |pid, to, nodes: &[_], count| drive::handshakes(pid, to, nodes, count, 16).await;
        let (nodes, count) = (&world.speaking, args.handshakes);
        // As after an outage: the gateway has met these before.
        shaken.push(shake(world.pid, world.address, nodes, count).await?);
        let first = new.next().context(
            "too few nodes are left that have not spoken: --nodes must be above --connections by --rounds at least",
        )?;
        new_shaken.push(shake(world.pid, world.address, first, first.len()).await?);
        go_shaken.push(shake(peer.process.id(), peer.address, nodes, count / 3).await?);
        let theft = stolen_ns(cpus)?.saturating_sub(theft);
        stolen.push(theft * 1000 / u64::try_from(began.elapsed().as_nanos())?.max(1));
    }
    let blocks = world.site.chain.height()?.saturating_sub(chain);
    let chain = (blocks, since.elapsed());
    let rss = usage(world.pid)?.rss_kib;
    drop((ours, theirs));
    let all = connect_all(&world).await?;
    figures(&Measured {
        args,
        full,
        few,
        half,
        go,
        shaken,
        new_shaken,
        go_shaken,
        floors,
        stolen,
        rss,
        all,
        chain,
        peer: &peer,
    })
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
    go: Vec<Stretch>,
    shaken: Vec<Stretch>,
    new_shaken: Vec<Stretch>,
    go_shaken: Vec<Stretch>,
    floors: Vec<Floor>,
    /// Thousandths of each round that the host took.
    stolen: Vec<u64>,
    rss: u64,
    all: u64,
    /// Blocks made meanwhile, and in what time.
    chain: (u64, Duration),
    peer: &'a Peer,
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
    let go = of(&m.go, &Stretch::per_cpu_second)?;
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
    let go_ratio = beside(rates(&m.full), rates(&m.go))?;
    let others = [&m.full, &m.half, &m.go, &m.shaken].map(|all| of(all, &|s| s.others_percent));
    let busy = others.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(json!({
        "nodes": m.args.nodes,
        "connections": m.args.connections,
        "block_time": m.args.block_time,
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
        "go_handshakes_per_s_per_core": of(&m.go_shaken, &Stretch::per_cpu_second)?,
        "go_per_s_per_core": go,
        "go_ratio": table::thousandths(go_ratio),
        "go_rss_mb": table::thousandths(usage(m.peer.process.id())?.rss_kib * 1000 / 1024),
        "rss_mb": table::thousandths(m.rss * 1000 / 1024),
        "rss_all_connected_mb": table::thousandths(m.all * 1000 / 1024),
        "store_bytes_per_heartbeat": of(&m.full, &|s| s.written / s.done.max(1))?,
        "go_store_bytes_per_heartbeat": of(&m.go, &|s| s.written / s.done.max(1))?,
        "others_busy_percent": median(busy)?,
        "stolen_permille": m.stolen.iter().max().context("no rounds")?,
    }))
}
