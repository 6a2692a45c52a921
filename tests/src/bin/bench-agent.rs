//! The node agent beside Debian's prometheus-node-exporter; `scripts/bench agent` runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hpc_tests::agent::Agent;
use hpc_tests::bench::agent::{Cost, Look, cost, look, programs};
use hpc_tests::chain::Kind;
use hpc_tests::process::{self, Process};
use hpc_tests::scene::Scene;
use hpc_tests::site::{CLUSTER, Site};
use hpc_tests::slurm::Slurm;
use hpc_tests::{port, scene, wait};
use serde_json::{Value, json};

/// Between two looks at the agent's memory.
const LOOK: Duration = Duration::from_millis(250);
/// Between two looks for programs of others that it asks, which live for some milliseconds, and for how long they are looked for:
/// each of them is asked once a minute, unless the machine is busy.
const PROGRAMS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(65));

/// The agent's cost beside that of an exporter that is scraped as often.
#[derive(Parser)]
struct Args {
    /// The agent, built as it is delivered.
    #[arg(long, default_value = "target/agent/virtengine-node-agent")]
    agent: PathBuf,
    /// The exporter.
    #[arg(long, default_value = "/usr/bin/prometheus-node-exporter")]
    exporter: PathBuf,
    /// How long to look.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Starts whose median time to the first heartbeat counts.
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/agent.json")]
    out: PathBuf,
    /// Fails where a figure misses its target.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    for (program, remedy) in [
        (
            &args.agent,
            "cargo build --profile agent --bin virtengine-node-agent",
        ),
        (&args.exporter, "apt-get install prometheus-node-exporter"),
    ] {
        ensure!(
            program.is_file(),
            "{} is missing. Remedy: {remedy}",
            program.display()
        );
    }
    scene::measure("bench-agent", |scene, _| {
        let site = Site::start(scene, Kind::Embedded)?;
        let agent = site.agent(scene, "node-0001")?;
        // Every collector on: a batch system with a job, the local interface, a neighbour.
        let folder = tempfile::Builder::new().prefix("hpc-bench-").tempdir_in("/tmp")?;
        let slurm = Slurm::start(folder.path())?;
        slurm.submit("sleep 3600", &[])?;
        let api = port::free()?;
        agent.configure(&format!(
            "slurm:\n  conf: {}\napi:\n  listen: 127.0.0.1:{api}\nprobe:\n  port: {}\n",
            slurm.conf().display(),
            port::free()?
        ))?;
        let _neighbour = neighbour(&args.agent, scene, &site)?;
        let figures = measure(&args, scene, &agent)?;
        print(&figures)?;
        save(&args.out, &figures)?;
        if args.check { check(&figures) } else { Ok(()) }
    })
}

/// Another node of the cluster, to measure the round trip to. On one machine two nodes have one fingerprint, so this one is
/// shown other hardware.
fn neighbour(program: &Path, scene: &Scene, site: &Site) -> Result<Process> {
    let node = "node-0002";
    let machine = scene.folder("other-machine")?;
    for (name, text) in [
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("sys/devices/system/cpu/online", "0\n"),
    ] {
        let path = machine.join(name);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, text)?;
    }
    let token = site.provider_run(&["node-token", "join", "--cluster-id", CLUSTER, "--uses", "1"])?;
    let agent = site.agent_with(scene, node, token.trim())?;
    let path = agent.path("config.yaml");
    let m = machine.display();
    let roots = format!("agent:\n  roots: {{sys: {m}/sys, etc: {m}/etc}}\n");
    let text = fs::read_to_string(&path)?.replace("agent:\n", &roots);
    fs::write(&path, text + &format!("probe:\n  port: {}\n", port::free()?))?;
    // A file of its own: what two processes map of one file counts for each by half.
    let copy = scene.path("neighbour");
    fs::copy(program, &copy)?;
    let mut command = Command::new(&copy);
    command.args(["run", "--config", &path]);
    let process = Process::start("neighbour", command, &scene.log("neighbour"))?;
    site.wait_state(node, "active")?;
    Ok(process)
}

fn measure(args: &Args, scene: &Scene, agent: &Agent) -> Result<Value> {
    let mut starts = Vec::new();
    for _ in 0..args.starts.max(1) {
        let (mut running, took) = start(&args.agent, scene, agent)?;
        starts.push(took);
        running.stop(Duration::from_secs(10))?;
    }
    starts.sort_unstable();
    let median = starts.get(starts.len() / 2).context("no start")?;

    let (agent_process, _) = start(&args.agent, scene, agent)?;
    let port = port::free()?;
    let mut command = Command::new(&args.exporter);
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let exporter = Process::start("exporter", command, &scene.log("exporter"))?;
    let url = format!("http://127.0.0.1:{port}/metrics");
    let scrape = || process::output(Command::new("curl").args(["-sf", "--max-time", "10", &url]));
    wait::until("the exporter", Duration::from_secs(10), || scrape().map(Some))?;
    // Both have started, and measured everything once.
    let interval = interval(agent)?;
    std::thread::sleep(interval);

    let began = Instant::now();
    let (first, other_first) = (cost(agent_process.id())?, cost(exporter.id())?);
    let accepted_before = accepted(agent)?;
    let (mut other_most, mut scrapes) = (0, 0u64);
    let mut memory = Memory::default();
    while began.elapsed() < Duration::from_secs(args.seconds) {
        scrape()?;
        scrapes += 1;
        // What it has taken for the answer may be gone by the next one.
        other_most = other_most.max(cost(exporter.id())?.pss_kib);
        let next = Instant::now() + interval;
        while Instant::now() < next {
            std::thread::sleep(LOOK);
            memory.look(look(agent_process.id())?);
        }
        other_most = other_most.max(cost(exporter.id())?.pss_kib);
    }
    let seconds = began.elapsed().as_secs_f64();
    let (last, other_last) = (cost(agent_process.id())?, cost(exporter.id())?);
    let heartbeats = accepted(agent)?.saturating_sub(accepted_before);
    ensure!(
        heartbeats > 0,
        "no heartbeat was accepted:\n{}",
        agent_process.log()
    );
    ensure!(peers(agent)?, "no round trip to the neighbour was measured");
    // Apart, as so many looks cost the agent time.
    let (asking, mut asked) = (Instant::now(), 0);
    while asking.elapsed() < PROGRAMS.1 {
        asked = asked.max(programs(agent_process.id())?);
        std::thread::sleep(PROGRAMS.0);
    }
    Ok(json!({
        "seconds": rounded(seconds),
        "interval_s": interval.as_secs(),
        "heartbeats": heartbeats,
        "scrapes": scrapes,
        "rss_mb": mb(memory.most),
        "rss_of_mb": memory.parts.iter().map(|(name, kib)| json!([name, mb(*kib)])).collect::<Vec<_>>(),
        "rss_mean_mb": mb(memory.mean()),
        "programs_rss_mb": Some(asked).filter(|kib| *kib > 0).map(mb),
        // Both at their most, as if they were at once.
        "rss_with_programs_mb": mb(memory.most.saturating_add(asked)),
        "node_exporter_rss_mb": mb(other_most),
        "cpu_ms_per_heartbeat": each(first, last, heartbeats),
        "programs_cpu_ms_per_heartbeat": rounded(
            number(last.ended_ns.saturating_sub(first.ended_ns)) / 1e6 / number(heartbeats)
        ),
        "node_exporter_cpu_ms_per_scrape": each(other_first, other_last, scrapes),
        "wakeups_per_s": rounded(number(last.switches.saturating_sub(first.switches)) / seconds),
        "start_to_first_heartbeat_ms": u64::try_from(median.as_millis())?,
        "binary_mb": mb(fs::metadata(&args.agent)?.len() / 1024),
    }))
}

/// Sums of PSS of the agent's processes.
#[derive(Debug, Default)]
struct Memory {
    most: u64,
    /// What that was made of.
    parts: Vec<(String, u64)>,
    sum: u64,
    looks: u64,
}

impl Memory {
    fn look(&mut self, look: Look) {
        let kib = look.cost.pss_kib.saturating_sub(look.programs_kib);
        if kib > self.most {
            (self.most, self.parts) = (kib, look.parts);
        }
        self.sum = self.sum.saturating_add(kib);
        self.looks = self.looks.saturating_add(1);
    }

    fn mean(&self) -> u64 {
        self.sum / self.looks.max(1)
    }
}

/// Whether the agent keeps a sample of its peers.
fn peers(agent: &Agent) -> Result<bool> {
    let text = fs::read_to_string(agent.path("state/history/latency")).unwrap_or_default();
    // Number, time, peers.
    Ok(text
        .lines()
        .any(|l| l.split_ascii_whitespace().nth(2) == Some("1")))
}

/// Starts the agent; returns once its first heartbeat is accepted, with the time that took.
fn start(program: &Path, scene: &Scene, agent: &Agent) -> Result<(Process, Duration)> {
    fs::remove_file(agent.path("state/status.json")).ok();
    let mut command = Command::new(program);
    command.args(["run", "--config", &agent.path("config.yaml")]);
    let began = Instant::now();
    let mut process = Process::start("agent", command, &scene.log("agent"))?;
    loop {
        if accepted(agent).is_ok_and(|n| n > 0) {
            return Ok((process, began.elapsed()));
        }
        process.check_alive()?;
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "no heartbeat:\n{}",
            process.log()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Heartbeats accepted since the agent's start.
fn accepted(agent: &Agent) -> Result<u64> {
    status(agent, "accepted")
}

/// Between heartbeats, as the gateway asked: the exporter is scraped as often.
fn interval(agent: &Agent) -> Result<Duration> {
    status(agent, "interval_seconds").map(Duration::from_secs)
}

fn status(agent: &Agent, name: &str) -> Result<u64> {
    let status: Value = serde_json::from_str(&fs::read_to_string(agent.path("state/status.json"))?)?;
    let number = status.get(name).and_then(Value::as_u64);
    number.with_context(|| format!("the agent's status has no {name}"))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn number(n: u64) -> f64 {
    n as f64
}

fn rounded(n: f64) -> f64 {
    (n * 1000.0).round() / 1000.0
}

fn mb(kib: u64) -> f64 {
    rounded(number(kib) / 1024.0)
}

fn each(first: Cost, last: Cost, n: u64) -> f64 {
    rounded(number(last.cpu_ns.saturating_sub(first.cpu_ns)) / 1e6 / number(n.max(1)))
}

fn print(figures: &Value) -> Result<()> {
    println!("{:<34} {:>12}", "one run, every collector on", "");
    for (name, value) in figures.as_object().context("no figures")? {
        println!("{name:<34} {:>12}", value.to_string());
    }
    Ok(())
}

fn save(path: &Path, figures: &Value) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, format!("{}\n", serde_json::to_string_pretty(figures)?))?;
    println!("written to {}", path.display());
    Ok(())
}

fn check(figures: &Value) -> Result<()> {
    let get = |name: &str| figures.get(name).and_then(Value::as_f64).unwrap_or(f64::INFINITY);
    let mut faults = Vec::new();
    for (name, most) in [
        ("rss_mb", 8.0),
        ("rss_mb", get("node_exporter_rss_mb") / 2.0),
        ("cpu_ms_per_heartbeat", 1.0),
        (
            "cpu_ms_per_heartbeat",
            get("node_exporter_cpu_ms_per_scrape") / 5.0,
        ),
        ("wakeups_per_s", 1.0),
        ("start_to_first_heartbeat_ms", 200.0),
    ] {
        if get(name) > most {
            faults.push(format!("{name} is {}, target {}", get(name), rounded(most)));
        }
    }
    if faults.is_empty() {
        println!("all figures are within their targets");
        return Ok(());
    }
    bail!("beyond target:\n  {}", faults.join("\n  "));
}
