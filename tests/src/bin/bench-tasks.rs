//! From submitting a task to a verified task at its node, with thousands of nodes that wait; `scripts/bench tasks` runs it.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use hpc_schema::key::{AgentKey, ZebraVerifier};
use hpc_schema::task::{
    TaskOutcome, TaskResult, TaskScope, TaskType, WaitAnswer, result_message, result_path, verify_task,
    wait_path,
};
use hpc_schema::time::Rfc3339;
use hpc_tests::bench::fleet;
use hpc_tests::bench::gateway::client::{self, Connection};
use hpc_tests::bench::gateway::host::usage;
use hpc_tests::bench::gateway::known::{self, Known};
use hpc_tests::chain::{CHAIN_ID, Kind};
use hpc_tests::port;
use hpc_tests::scene::{self, Scene};
use hpc_tests::site::{CLUSTER, Site};
use rustls::ClientConfig;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use virtengine_provider::clock;

/// Targets: milliseconds, milliseconds, KiB.
const P50_MS: f64 = 1.5;
const P99_MS: f64 = 10.0;
const KB_PER_PARKED: u64 = 30;
/// What a probe that was completed says.
const PROBED: &str =
    r#"{"status":"pass","checks":[],"kvm_present":true,"vfio_loaded":true,"gpus":[],"fabric_links":[]}"#;

/// Tasks to nodes that wait.
#[derive(Parser)]
struct Args {
    /// Nodes that wait.
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    /// Tasks that count.
    #[arg(long, default_value_t = 500)]
    tasks: usize,
    /// Tasks before them.
    #[arg(long, default_value_t = 50)]
    warm: usize,
    /// Where the figures go.
    #[arg(long, default_value = "target/bench/tasks.json")]
    out: PathBuf,
    /// Fails where a figure misses its target.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    scene::measure("bench-tasks", |scene, _| runtime.block_on(measure(&args, scene)))
}

/// A task that a node has verified.
struct Arrived {
    task_id: String,
    at: Instant,
}

async fn measure(args: &Args, scene: &Scene) -> Result<()> {
    let mut site = Site::prepare(scene, Kind::Embedded)?;
    site.activate()?;
    site.set("CHAIN__SYNC", "5s");
    site.set("CHAIN__POLL", "1s");
    site.set("LOG__LEVEL", "warn");
    let admin = port::free()?;
    site.set("ADMIN__LISTEN", format!("127.0.0.1:{admin}"));
    site.set("ADMIN__REQUESTS_PER_MINUTE", "60000");
    eprintln!("registering {} nodes", args.nodes);
    let nodes = known::register(&site, args.nodes).await?;
    let first = nodes.first().context("no nodes")?;
    // A token makes the daemon serve the cluster; it finds the nodes on the chain.
    site.token("node-unused", &fleet::public(&first.key)?.to_base64(), "1h")?;
    let task_key = site.provider_run(&["keys", "task", "--cluster-id", CLUSTER])?;
    let task_key: AgentKey = task_key.trim().parse()?;
    site.start_provider()?;
    let pid = site.provider()?.id();
    let to = SocketAddr::from(([127, 0, 0, 1], site.gateway_port()));
    let ca_pem = fs::read_to_string(site.home().join("ca/ca.crt"))?;
    let known_to_daemon = Instant::now();
    let (probe, probe_tls) = (first.clone(), client::tls(first, &ca_pem)?);
    loop {
        let mut connection = Connection::open(to, Arc::clone(&probe_tls)).await?;
        let request = get(&wait_path(&probe.id), 0);
        connection.ask(request.as_bytes()).await?;
        if connection.last().starts_with("HTTP/1.1 204") {
            break;
        }
        ensure!(
            known_to_daemon.elapsed() < Duration::from_secs(120),
            "{}",
            connection.last()
        );
        sleep(Duration::from_millis(500)).await;
    }
    let before = usage(pid)?.rss_kib;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let contract: Arc<str> = site.contract.clone().into();
    let mut waiting = JoinSet::new();
    let (parked, opening) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(64)));
    for node in &nodes {
        let waits = Waits {
            to,
            node: node.clone(),
            tls: client::tls(node, &ca_pem)?,
            task_key,
            contract: Arc::clone(&contract),
            arrived: arrived.clone(),
            parked: Arc::clone(&parked),
            opening: Arc::clone(&opening),
        };
        waiting.spawn(waits.run());
    }
    let all = u32::try_from(nodes.len())?;
    timeout(Duration::from_secs(300), parked.acquire_many(all))
        .await??
        .forget();
    sleep(Duration::from_secs(2)).await;
    let parked_kib = usage(pid)?.rss_kib.saturating_sub(before);
    let kb_per_parked = parked_kib / u64::try_from(nodes.len().max(1))?;
    eprintln!("{} nodes wait, {kb_per_parked} KiB each", nodes.len());

    let mut desk = Desk::open(&site, admin).await?;
    let mut took = Vec::new();
    for n in 0..args.warm + args.tasks {
        let node = nodes
            .get(n.wrapping_mul(7919) % nodes.len())
            .context("no nodes")?;
        let began = Instant::now();
        let task_id = desk.submit(node).await?;
        let next = timeout(Duration::from_secs(30), arrivals.recv()).await?;
        let next: Arrived = next.context("nobody waits")?;
        ensure!(next.task_id == task_id, "another task came: {}", next.task_id);
        if n >= args.warm {
            took.push(next.at.duration_since(began));
        }
        sleep(Duration::from_millis(5)).await;
    }
    waiting.abort_all();
    took.sort_unstable();
    let at = |permille: usize| -> Result<f64> {
        let place = (took.len() * permille / 1000).min(took.len().saturating_sub(1));
        Ok(took.get(place).context("no tasks")?.as_secs_f64() * 1000.0)
    };
    let (p50_ms, p99_ms) = (at(500)?, at(990)?);
    let figures: HashMap<&str, serde_json::Value> = HashMap::from([
        ("p50_ms", json!(p50_ms)),
        ("p99_ms", json!(p99_ms)),
        ("parked", json!(nodes.len())),
        ("kb_per_parked", json!(kb_per_parked)),
        ("tasks", json!(took.len())),
    ]);
    println!(
        "submitted to verified at its node, {} nodes wait, {} tasks: p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms; {kb_per_parked} KiB a node",
        nodes.len(),
        took.len()
    );
    if let Some(folder) = args.out.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(
        &args.out,
        format!("{}\n", serde_json::to_string_pretty(&figures)?),
    )?;
    println!("written to {}", args.out.display());
    site.stop_provider()?;
    if args.check && (p50_ms > P50_MS || p99_ms > P99_MS || kb_per_parked > KB_PER_PARKED) {
        bail!("beyond target: p50 {P50_MS} ms, p99 {P99_MS} ms, {KB_PER_PARKED} KiB a node");
    }
    Ok(())
}

fn get(path: &str, seconds: u32) -> String {
    format!("GET {path}?wait_seconds={seconds} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

/// Who submits tasks: an operator at the loopback admin listener, on one connection.
struct Desk {
    connection: Connection<TcpStream>,
    credential: String,
}

impl Desk {
    async fn open(site: &Site, port: u16) -> Result<Self> {
        let made = site.provider_run(&[
            "admin-token",
            "create",
            "--name",
            "bench",
            "--role",
            "operator",
            "--expires",
            "1h",
        ])?;
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Self {
            connection: Connection::open_plain(to).await?,
            credential: made.trim().to_owned(),
        })
    }

    /// Submits a probe for this node; the task's id.
    async fn submit(&mut self, node: &Known) -> Result<String> {
        let body = json!({
            "node_id": node.id, "cluster_id": node.cluster, "type": TaskType::DiagHealthProbe, "expires_seconds": 600,
        });
        let body = body.to_string();
        let request = format!(
            "POST /api/v1/admin/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.credential,
            body.len()
        );
        self.connection.ask(request.as_bytes()).await?;
        let answer = self.connection.last();
        let row = answer.split_once("\r\n\r\n").map(|(_, body)| body);
        let row: serde_json::Value = serde_json::from_str(row.unwrap_or_default())?;
        let id = row.get("task_id").and_then(serde_json::Value::as_str);
        Ok(id.with_context(|| answer.clone())?.to_owned())
    }
}

/// One node that waits for tasks, verifies each and says that it is done.
struct Waits {
    to: SocketAddr,
    node: Known,
    tls: Arc<ClientConfig>,
    task_key: AgentKey,
    contract: Arc<str>,
    arrived: mpsc::UnboundedSender<Arrived>,
    parked: Arc<Semaphore>,
    opening: Arc<Semaphore>,
}

impl Waits {
    async fn run(self) -> Result<()> {
        let place = self.opening.acquire().await?;
        let mut connection = Connection::open(self.to, Arc::clone(&self.tls)).await?;
        drop(place);
        self.parked.add_permits(1);
        let request = get(&wait_path(&self.node.id), 120);
        loop {
            connection.ask(request.as_bytes()).await?;
            let answer = connection.last();
            let Some((_, body)) = answer.split_once("\r\n\r\n").filter(|(_, b)| !b.is_empty()) else {
                continue;
            };
            let answer: WaitAnswer = serde_json::from_str(body).with_context(|| answer.clone())?;
            for delivered in answer.tasks {
                let scope = TaskScope {
                    chain_id: CHAIN_ID,
                    contract: &self.contract,
                    cluster_id: &self.node.cluster,
                    node_id: &self.node.id,
                };
                let task = delivered.task;
                let (_, hash) = verify_task(&task, &scope, &self.task_key, clock::now(), &ZebraVerifier)?;
                self.arrived.send(Arrived {
                    task_id: task.task_id.to_string(),
                    at: Instant::now(),
                })?;
                let at = Rfc3339::from_unix(clock::now().0, 0)?;
                let mut result = TaskResult {
                    task_hash: hash.to_hex(),
                    outcome: TaskOutcome::Completed,
                    code: None,
                    detail: None,
                    result: RawValue::from_string(PROBED.to_owned())?,
                    started_at: at.clone(),
                    finished_at: at,
                    signature: String::new(),
                };
                let signature = <[u8; 64]>::from(self.node.key.sign(&result_message(hash, &result)));
                result.signature = STANDARD.encode(signature);
                let body = serde_json::to_string(&result)?;
                let path = result_path(&self.node.id, &task.task_id);
                let post = format!(
                    "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                connection.ask(post.as_bytes()).await?;
            }
        }
    }
}
