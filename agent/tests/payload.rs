//! From the kernel's files to the signed payload: the real agent on a recorded 8-GPU node whose counters move, and what
//! makes it report out of turn.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gateway::{Gateway, Home, NODE, read, stand_in};
use hpc_schema::gateway::ConfigUpdates;
use hpc_schema::heartbeat::{HealthStatus, Heartbeat};
use hpc_schema::node::NodeState;
use serde_json::Value;
use tokio::process::{Child, Command};
use tree::unpack;

/// Points between what the counters say and what arrives.
const POINTS: u8 = 5;

/// A recorded node in a folder of its own.
struct Recorded {
    home: Home,
    root: PathBuf,
}

impl Recorded {
    fn new() -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        let home = Home::new();
        let root = home.path("node");
        unpack(&read(&fixtures.join("gpu-node.tree")), &root);
        fs::write(root.join("proc/uptime"), "10000.00 1.00\n").unwrap();
        for folder in ["dev", "etc"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::copy(fixtures.join("kmsg/gpu-node.txt"), root.join("dev/kmsg")).unwrap();
        let compiled = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-DGPUS=8", "-o"])
            .args([root.join("libnvidia-ml.so"), fixtures.join("nvml/stub.c")])
            .status()
            .expect("a C compiler (Debian: gcc) is needed to build the stand-in");
        assert!(compiled.success());
        Self { home, root }
    }

    fn configure(&self, gateway: &Gateway) -> PathBuf {
        let path = self
            .home
            .configure(&[gateway.url()], Some(&gateway.token(&self.home.key.public())));
        let root = self.root.display();
        let roots = format!(
            "agent:\n  storage_path: {root}\n  roots: {{proc: {root}/proc, sys: {root}/sys, dev: {root}/dev, etc: {root}/etc}}\n"
        );
        let text = read(&path).replace("agent:\n", &roots)
            + &format!("  temperature_interval: 30s\ngpu: {{nvml_library: {root}/libnvidia-ml.so}}\n");
        fs::write(&path, text).unwrap();
        path
    }

    fn start(&self, gateway: &Gateway) -> Child {
        self.start_with(gateway, |text| text)
    }

    /// With another configuration.
    fn start_with(&self, gateway: &Gateway, change: impl FnOnce(String) -> String) -> Child {
        let config = self.configure(gateway);
        fs::write(&config, change(read(&config))).unwrap();
        let log = fs::File::create(self.home.path("agent.log")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
            .args(["run", "--config"])
            .arg(config)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn log(&self) -> String {
        read(&self.home.path("agent.log"))
    }
}

/// Moves the counters of CPU (40 % busy), first disk (25 %) and network link (12 % of its speed) with the clock.
struct Counters(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Counters {
    fn start(root: &Path) -> Self {
        let open = |name: &str| fs::File::create(root.join(name)).unwrap();
        let (stat, disks, net) = (open("proc/stat"), open("proc/diskstats"), open("proc/net/dev"));
        let megabits: u64 = read(&root.join("sys/class/net/ens1f0/speed"))
            .trim()
            .parse()
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let begin = Instant::now();
        let step = move || {
            // Of one length always: the agent reads in place. Since boot next to nothing was done.
            let ms = u64::try_from(begin.elapsed().as_millis()).unwrap();
            let (busy, idle) = (ms * 40, 1_000_000_000_000 + ms * 60);
            let text = format!("cpu  {busy:018} 0 0 {idle:018} 0 0 0 0 0 0\nintr 0\n");
            stat.write_all_at(text.as_bytes(), 0).unwrap();
            let io = ms / 4;
            let text = format!(
                " 259       0 nvme0n1 1 0 8 1 1 0 8 2 0 {io:018} 3\n 259       1 nvme1n1 1 0 8 1 1 0 8 2 0 {:018} 3\n",
                io / 10
            );
            disks.write_all_at(text.as_bytes(), 0).unwrap();
            let bytes = megabits * 1000 / 8 * ms * 12 / 100;
            let text = format!(
                "Inter-|\n face |\nens1f0: {bytes:018} 1 0 0 0 0 0 0 {:018} 1 0 0 0 0 0 0\n",
                bytes / 2
            );
            net.write_all_at(text.as_bytes(), 0).unwrap();
        };
        step();
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                step();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().ok();
    }
}

fn near(what: &str, reported: Option<hpc_schema::heartbeat::Percent>, expected: u8) {
    let reported = reported.unwrap_or_else(|| panic!("no {what}")).get();
    assert!(
        reported.abs_diff(expected) <= POINTS,
        "{what}: {reported} %, expected {expected} %"
    );
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "{}",
                fs::read_to_string(self.home.path("agent.log")).unwrap_or_default()
            );
        }
    }
}

#[tokio::test]
async fn every_figure_of_a_recorded_node_arrives_in_its_own_field() {
    let node = Recorded::new();
    let _counters = Counters::start(&node.root);
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let agent = node.start(&gateway);
    gateway
        .until("a heartbeat with figures of an interval", |s| {
            s.heartbeats
                .last()
                .is_some_and(|h| h.heartbeat.health.network_utilization_percent.is_some())
        })
        .await;
    let payload = gateway.last();
    let c = &payload.capacity;
    assert_eq!(
        (c.cpu_cores_total, c.cpu_cores_available, c.cpu_cores_allocated),
        (64, 64, Some(0))
    );
    assert_eq!((c.memory_gb_total, c.memory_gb_available), (2016, 1500));
    assert_eq!((c.gpus_total, c.gpus_available), (Some(8), Some(8)));
    assert_eq!(c.gpu_type.as_ref().unwrap().as_str(), "NVIDIA H100 80GB HBM3");
    assert!(c.storage_gb_total.is_some_and(|n| n > 0));
    let h = &payload.health;
    near("cpu_utilization_percent", h.cpu_utilization_percent, 40);
    near("memory_utilization_percent", h.memory_utilization_percent, 26);
    near("disk_io_utilization_percent", h.disk_io_utilization_percent, 25);
    near("network_utilization_percent", h.network_utilization_percent, 12);
    near("gpu_utilization_percent", h.gpu_utilization_percent, 84);
    near(
        "gpu_memory_utilization_percent",
        h.gpu_memory_utilization_percent,
        25,
    );
    assert_eq!(h.uptime_seconds, Some(10_000));
    let loads = [h.load_average_1m, h.load_average_5m, h.load_average_15m];
    assert_eq!(
        loads.map(|l| l.unwrap().to_string()),
        ["61.200000", "58.750000", "55.010000"]
    );
    assert_eq!(h.temperature_celsius, Some(63));
    assert!(h.gpu_temperature_celsius.is_some());
    assert_eq!((h.error_count_24h, h.warning_count_24h), (Some(6), Some(7)));
    assert_eq!(h.slurm_state, None);
    assert_eq!(h.status, HealthStatus::Degraded);
    let jobs = payload.jobs.unwrap();
    assert_eq!((jobs.running_count, jobs.pending_count), (Some(0), Some(0)));
    drop(agent);
}

/// Every value of the payload by its path; of lists as one.
fn leaves(of: &Value, path: &str, into: &mut BTreeMap<String, Value>) {
    match of {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                leaves(value, &path, into);
            }
        }
        other => drop(into.insert(path.to_owned(), other.clone())),
    }
}

fn fields(heartbeat: &Heartbeat) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    leaves(&serde_json::to_value(heartbeat).unwrap(), "", &mut all);
    all
}

/// Every field that the payload may have, as the schema lists them.
fn schema() -> BTreeSet<String> {
    let text = include_str!("../../schema/json/heartbeat.json");
    let schema: Value = serde_json::from_str(text).unwrap();
    let mut all = BTreeSet::new();
    for (name, property) in schema["properties"].as_object().unwrap() {
        let of = property["$ref"]
            .as_str()
            .or(property["anyOf"][0]["$ref"].as_str());
        let inner = of.map(|of| &schema["$defs"][of.trim_start_matches("#/$defs/")]["properties"]);
        match inner.and_then(Value::as_object) {
            Some(inner) => all.extend(inner.keys().map(|k| format!("{name}.{k}"))),
            None => drop(all.insert(name.clone())),
        }
    }
    all
}

/// None of a node's eight GPUs is given away.
const GRES: &str = "Gres=gpu:h100:8 GresUsed=gpu:h100:0";

/// Slurm's programs as they answer on a node with 16 of its 64 cores given away, in a cluster where much else runs. `gres`:
/// what they say of GPUs.
fn batch_system(root: &Path, gres: &str, running: &str) {
    let folder = root.join("slurm");
    fs::create_dir_all(&folder).unwrap();
    let node = format!(
        "NodeName=node042 CPUAlloc=16 CPUEfctv=64 CPUTot=64 {gres} RealMemory=2064384 AllocMem=65536 State=MIXED Version=24.11.5"
    );
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 60;
    let queue = format!(
        "{running}8|RUNNING|0|node[043-099]||(null)\n9|PENDING|0||node042|(null)\n\
         10|PENDING|0|||(null)\n11|COMPLETED|{ended}|node042||(null)\n12|FAILED|{ended}|node043||(null)"
    );
    for (name, says) in [("scontrol", &node), ("squeue", &queue)] {
        stand_in(
            &folder.join(name),
            &format!("#!/bin/sh\ncat <<'END'\n{says}\nEND\n"),
        );
    }
}

/// Fault 16 of the reference implementation: CPU since boot, available = total, uptime of the process, disk and network 0,
/// no GPU figures, the whole cluster's jobs on every node.
#[tokio::test]
async fn every_field_of_the_payload_is_measured_for_real_on_this_node_or_absent() {
    let node = Recorded::new();
    let _counters = Counters::start(&node.root);
    batch_system(&node.root, "", "7|RUNNING|0|node042||(null)\n");
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let agent = node.start_with(&gateway, |text| {
        let slurm = format!(
            "slurm: {{enabled: true, node_name: node042, bin_dir: {}/slurm}}",
            node.root.display()
        );
        text.replace("slurm: {enabled: false}", &slurm)
    });
    gateway
        .until("a heartbeat with figures of an interval", |s| {
            s.heartbeats.last().is_some_and(|h| {
                let h = &h.heartbeat;
                h.health.network_utilization_percent.is_some() && h.latency.is_some()
            })
        })
        .await;
    let real = fields(&gateway.last());
    drop(agent);
    let text = |path: &str| {
        real.get(path)
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
    };
    for (path, expected) in [
        ("capacity.cpu_cores_total", "64"),
        ("capacity.cpu_cores_available", "48"),
        ("capacity.cpu_cores_allocated", "16"),
        ("capacity.memory_gb_total", "2016"),
        ("capacity.memory_gb_allocated", "64"),
        ("capacity.gpus_total", "8"),
        // Slurm counts none here, and on each of them something computes.
        ("capacity.gpus_available", "0"),
        ("capacity.gpu_type", "NVIDIA H100 80GB HBM3"),
        ("health.uptime_seconds", "10000"),
        ("health.load_average_1m", "61200000"),
        ("health.temperature_celsius", "63"),
        ("health.error_count_24h", "6"),
        ("health.warning_count_24h", "7"),
        ("health.slurm_state", "mixed"),
        ("jobs.running_count", "1"),
        ("jobs.pending_count", "1"),
        ("jobs.failed_24h", "0"),
        ("jobs.active_job_ids", r#"["slurm-7"]"#),
    ] {
        assert_eq!(text(path).as_deref(), Some(expected), "{path} in {real:#?}");
    }
    assert_eq!(text("capacity.gpus_allocated"), None, "{real:#?}");
    let number = |path: &str| {
        real[path]
            .as_u64()
            .unwrap_or_else(|| panic!("{path} in {real:#?}"))
    };
    assert!(number("capacity.memory_gb_available") < number("capacity.memory_gb_total"));
    assert!(number("capacity.storage_gb_available") <= number("capacity.storage_gb_total"));
    assert!(number("jobs.completed_24h") <= 1);
    // Of the interval: since boot it would be 0 %.
    let points = u64::from(POINTS);
    for (path, percent) in [
        ("health.cpu_utilization_percent", 40),
        ("health.disk_io_utilization_percent", 25),
        ("health.network_utilization_percent", 12),
        ("health.gpu_utilization_percent", 84),
        ("health.gpu_memory_utilization_percent", 25),
        ("health.memory_utilization_percent", 26),
    ] {
        assert!(
            number(path).abs_diff(percent) <= points,
            "{path} is {}, not {percent}",
            number(path)
        );
    }
    for path in [
        "health.gpu_temperature_celsius",
        "latency.gateway_latency_us",
        "latency.chain_latency_ms",
    ] {
        assert!(number(path) > 0, "{path}");
    }

    // A node of which the kernel says next to nothing: what is not known is not there, and nothing is 0 instead.
    let bare = Recorded::new();
    for folder in ["sys", "dev", "etc"] {
        fs::remove_dir_all(bare.root.join(folder)).unwrap();
        fs::create_dir_all(bare.root.join(folder)).unwrap();
    }
    for gone in ["diskstats", "net", "loadavg", "uptime", "pressure"] {
        let path = bare.root.join("proc").join(gone);
        fs::remove_dir_all(&path)
            .or_else(|_| fs::remove_file(&path))
            .unwrap();
    }
    fs::remove_file(bare.root.join("libnvidia-ml.so")).unwrap();
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let agent = bare.start(&gateway);
    gateway.until_heartbeats(3).await;
    let absent = fields(&gateway.last());
    drop(agent);
    let known = [
        "agent_version",
        "capacity.cpu_cores_allocated",
        "capacity.cpu_cores_available",
        "capacity.cpu_cores_total",
        "capacity.memory_gb_allocated",
        "capacity.memory_gb_available",
        "capacity.memory_gb_total",
        "capacity.storage_gb_allocated",
        "capacity.storage_gb_available",
        "capacity.storage_gb_total",
        "cluster_id",
        "health.memory_utilization_percent",
        "health.status",
        "jobs.active_job_ids",
        "jobs.pending_count",
        "jobs.running_count",
        "latency.chain_latency_ms",
        "latency.gateway_latency_us",
        "latency.measurements",
        "node_id",
        "sequence_number",
        "timestamp",
    ];
    // Programs of this machine are found where they are installed, and only there.
    let there = absent.keys().map(String::as_str);
    let there: Vec<&str> = there.filter(|f| !f.starts_with("services.")).collect();
    assert_eq!(there, known, "{absent:#?}");

    // No field is left out of this test: the first node has each that a node alone can have.
    let elsewhere = [
        // Where Slurm counts GPUs, in the test of a lost one.
        "capacity.gpus_allocated",
        // Measured with a neighbour, in tests of the prober and of the fleet.
        "latency.avg_cluster_latency_us",
        // Of what is installed, in tests with a real Slurm.
        "services.container_runtime",
        "services.container_runtime_version",
        "services.munge_running",
        "services.slurmd_running",
        "services.slurmd_version",
    ];
    let missing: Vec<String> = schema()
        .into_iter()
        .filter(|f| !real.contains_key(f) && !elsewhere.contains(&f.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {real:#?}");
}

/// The totals of a heartbeat are what the chain keeps: a silence of Slurm on all nodes at once must not change them all.
#[tokio::test]
async fn slurms_total_of_cores_outlives_a_restart_while_slurm_is_silent() {
    let node = Recorded::new();
    batch_system(&node.root, "", "7|RUNNING|0|node042||(null)\n");
    let scontrol = node.root.join("slurm/scontrol");
    // Half of what the kernel counts.
    let said = read(&scontrol).replace("CPUEfctv=64 CPUTot=64", "CPUEfctv=32 CPUTot=32");
    stand_in(&scontrol, &said);
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let with_slurm = |text: String| {
        let slurm = format!(
            "slurm: {{enabled: true, node_name: node042, bin_dir: {}/slurm}}",
            node.root.display()
        );
        text.replace("slurm: {enabled: false}", &slurm)
    };
    let mut agent = node.start_with(&gateway, with_slurm);
    gateway
        .until("a heartbeat with Slurm's cores and its job", |s| {
            s.heartbeats.last().is_some_and(|h| {
                let running = h.heartbeat.jobs.as_ref().and_then(|j| j.running_count);
                h.heartbeat.capacity.cpu_cores_available == 16 && running == Some(1)
            }) && node.home.path("state/slurm.json").exists()
        })
        .await;
    agent.kill().await.unwrap();
    stand_in(&scontrol, "#!/bin/sh\nexit 1\n");
    let before = gateway.seen().heartbeats.len();
    let agent = node.start_with(&gateway, with_slurm);
    gateway.until_heartbeats(before + 2).await;
    for h in gateway.seen().heartbeats.iter().skip(before) {
        let c = &h.heartbeat.capacity;
        let cores = (c.cpu_cores_total, c.cpu_cores_available, c.cpu_cores_allocated);
        assert_eq!(cores, (32, 0, None), "{}", node.log());
    }
    drop(agent);
}

#[tokio::test]
async fn a_lost_gpu_and_the_last_job_of_a_drain_are_reported_out_of_turn() {
    let node = Recorded::new();
    batch_system(&node.root, GRES, "7|RUNNING|0|node042||(null)\n");
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    gateway.behaviour().node_state = NodeState::Draining;
    let agent = node.start_with(&gateway, |text| {
        let slurm = format!(
            "slurm: {{enabled: true, node_name: node042, bin_dir: {}/slurm}}",
            node.root.display()
        );
        text.replace("slurm: {enabled: false}", &slurm).replace(
            "  temperature_interval",
            "  jobs_interval: 30s\n  temperature_interval",
        )
    });
    let running = |h: &Heartbeat| h.jobs.as_ref().and_then(|j| j.running_count);
    gateway
        .until("a heartbeat with GPUs and a job", |s| {
            s.heartbeats.last().is_some_and(|h| {
                h.heartbeat.capacity.gpus_available == Some(8) && running(&h.heartbeat) == Some(1)
            })
        })
        .await;
    assert_eq!(gateway.last().capacity.gpus_allocated, Some(0));
    // From the next one on there are two minutes between two.
    gateway.behaviour().next_heartbeat_seconds = 120;
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    let other = node.root.join("other.so");
    let compiled = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-DGPUS=8", "-DLOST=1", "-o"])
        .arg(&other)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/nvml/stub.c"))
        .status()
        .unwrap();
    assert!(compiled.success());
    let begin = Instant::now();
    fs::rename(&other, node.root.join("libnvidia-ml.so")).unwrap();
    while gateway.last().capacity.gpus_available != Some(7) {
        assert!(begin.elapsed() < Duration::from_secs(75), "{}", node.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(gateway.last().capacity.gpus_total, Some(8), "lost is not gone");
    assert_eq!(running(&gateway.last()), Some(1));
    let begin = Instant::now();
    batch_system(&node.root, GRES, "");
    while running(&gateway.last()) != Some(0) {
        assert!(begin.elapsed() < Duration::from_secs(75), "{}", node.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(agent);
}

#[tokio::test]
async fn a_sensor_at_its_limit_is_reported_out_of_turn() {
    let node = Recorded::new();
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 120;
    let agent = node.start(&gateway);
    gateway.until_heartbeats(1).await;
    let findings = || gateway::status(&node.home).findings;
    let hot = |f: &String| f.starts_with("sensor_critical");
    while !node.home.path("state/status.json").exists() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!findings().iter().any(hot));
    fs::write(node.root.join("sys/class/hwmon/hwmon0/temp2_input"), "120000\n").unwrap();
    let written = Instant::now();
    while !findings().iter().any(hot) {
        assert!(written.elapsed() < Duration::from_secs(60), "{}", node.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Status says what the last heartbeat was made of; in turn the next would come after two minutes.
    let seen = gateway.seen();
    let last = *seen.arrived.last().unwrap();
    assert!(last > written && seen.heartbeats.len() > 1, "{}", node.log());
    drop(seen);
    drop(agent);
}

#[tokio::test]
async fn what_the_gateway_sets_beyond_the_limits_is_clamped_with_one_notice() {
    let node = Recorded::new();
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    gateway.behaviour().config_updates = Some(ConfigUpdates {
        sampling_interval_seconds: Some(1),
        metrics_retention_hours: Some(9999),
        ..ConfigUpdates::default()
    });
    let agent = node.start(&gateway);
    gateway.until_heartbeats(2).await;
    let log = node.log();
    for part in [
        "sampling_interval_seconds of the gateway: 1s is outside 10s to 60s, the limits of Capacity; 10s is used",
        "metrics_retention_hours of the gateway: 9999 is outside 1 to 720; 720 is used",
    ] {
        assert!(log.contains(part), "{part}: {log}");
        assert_eq!(log.matches(part).count(), 1, "said once: {log}");
    }
    drop(agent);
}

/// Flag over environment over file: the first two endpoints lead nowhere.
#[tokio::test]
async fn flags_count_more_than_the_environment_and_that_more_than_the_file() {
    let gateway = Gateway::start().await;
    let nowhere = "https://localhost:1";
    let home = Home::new();
    let token = gateway.token(&home.key.public());
    let run = |file: &str, environment: &str, flag: Option<&str>| {
        let config = home.configure(&[file.to_owned()], Some(&token));
        let mut command = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"));
        command
            .args(["run", "--config"])
            .arg(config)
            .env_clear()
            .env("VIRTENGINE_NODE_AGENT_ENDPOINT", environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if let Some(flag) = flag {
            command.args(["--endpoint", flag]);
        }
        command.spawn().unwrap()
    };
    // Gone before the next one wants its state.
    let mut agent = run(nowhere, &gateway.url(), None);
    gateway.until_heartbeats(1).await;
    agent.kill().await.unwrap();
    let seen = gateway.seen().heartbeats.len();
    let mut agent = run(nowhere, nowhere, Some(&gateway.url()));
    gateway.until_heartbeats(seen + 1).await;
    agent.kill().await.unwrap();
    // And the environment does count: with a wrong one nothing arrives.
    let seen = gateway.seen().heartbeats.len();
    let agent = run(&gateway.url(), nowhere, None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(gateway.seen().heartbeats.len(), seen);
    drop(agent);
    assert_eq!(gateway.seen().heartbeats[0].heartbeat.node_id.as_str(), NODE);
}
