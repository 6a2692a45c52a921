//! Measured truth: under a load, every figure beside the kernel's counters, and beside what Debian's
//! prometheus-node-exporter says of the same time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests"
)]

mod gateway;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::probe::cpu::CpuProbe;
use virtengine_node_agent::probe::disk::DiskProbe;
use virtengine_node_agent::probe::host::HostProbe;
use virtengine_node_agent::probe::memory::{Memory, MemoryProbe};
use virtengine_node_agent::probe::network::{LinkSpeeds, NetworkProbe};

/// Long enough for a hundred ticks of each processor, and for a point or two to be what a busy machine lets pass between
/// our look and the exporter's.
const WINDOW: Duration = Duration::from_secs(10);
/// Of a gigabit, as the loopback device is said to have.
const MEGABITS: f64 = 1000.0;
const POINTS: f64 = 5.0;

/// Keeps a processor, a disk and the loopback device busy, and holds memory, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    _memory: Vec<u8>,
}

impl Load {
    fn start(folder: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let mut work = |mut step: Box<dyn FnMut() + Send>| {
            let stop = Arc::clone(&stop);
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    step();
                }
            }));
        };
        let mut n = 0u64;
        work(Box::new(move || {
            n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(1));
        }));
        let mut file = fs::File::create(folder.join("load")).unwrap();
        let block = vec![7u8; 1 << 20];
        work(Box::new(move || {
            file.set_len(0).unwrap();
            file.write_all(&block).unwrap();
            file.sync_all().unwrap();
        }));
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = door.accept().unwrap();
        std::thread::spawn(move || while receiver.read(&mut [0u8; 65536]).is_ok_and(|n| n > 0) {});
        // About 300 Mbit/s.
        work(Box::new(move || {
            sender.write_all(&[0u8; 40_000]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }));
        Self {
            stop,
            threads,
            _memory: vec![1u8; 256 << 20],
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            t.join().ok();
        }
    }
}

/// The kernel's counters, read by code of the test's own.
struct Kernel {
    at: Instant,
    busy: f64,
    total: f64,
    /// Milliseconds with a request under way, by block device.
    disk_ms: BTreeMap<String, f64>,
    sent: f64,
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_ascii_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect()
}

fn kernel() -> Kernel {
    let at = Instant::now();
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let cpu = numbers(stat.lines().next().unwrap());
    let total: f64 = cpu[..8].iter().sum();
    let disks = fs::read_to_string("/proc/diskstats").unwrap();
    let disks = disks.lines().map(|l| {
        let name = l.split_ascii_whitespace().nth(2).unwrap().to_owned();
        // The name is no number: major, minor, then reads …
        (name, numbers(l)[11])
    });
    let net = fs::read_to_string("/proc/net/dev").unwrap();
    let lo = net.lines().find_map(|l| l.trim().strip_prefix("lo:")).unwrap();
    Kernel {
        at,
        busy: total - cpu[3] - cpu[4],
        total,
        disk_ms: disks.collect(),
        sent: numbers(lo)[8],
    }
}

/// Debian's exporter.
struct Exporter(Child, gateway::Port);

impl Exporter {
    fn start() -> Self {
        let held = gateway::Port::free();
        let port = held.number();
        let child = Command::new("prometheus-node-exporter")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            // By default it leaves the loopback device out.
            .arg("--collector.netdev.device-exclude=^none$")
            .stderr(Stdio::null())
            .spawn()
            .expect("apt-get install prometheus-node-exporter, or scripts/test --install");
        let exporter = Self(child, held);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "the exporter does not answer"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        exporter
    }

    fn scrape(&self) -> String {
        scrape(self.1.number())
    }
}

fn scrape(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Sum of the samples of `name` whose labels hold `label`.
fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let values = metrics.lines().filter(|l| {
        l.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
            && l.contains(label)
    });
    values
        .filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

fn near(what: &str, ours: f64, theirs: f64) {
    assert!(
        (ours - theirs).abs() <= POINTS,
        "{what}: {ours} here, {theirs} beside"
    );
}

/// The physical disk that a folder lies on, through partitions and mappings; none on a file system without one.
fn disk_of(folder: &Path) -> Option<String> {
    let dev = fs::metadata(folder).ok()?.dev();
    let block = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(dev),
        rustix::fs::minor(dev)
    );
    let mut at = fs::canonicalize(block).ok()?;
    loop {
        if at.join("partition").exists() {
            at = at.parent()?.to_owned();
        } else if at.join("device").exists() {
            return Some(at.file_name()?.to_str()?.to_owned());
        } else {
            let below = fs::read_dir(at.join("slaves")).ok()?.next()?.ok()?;
            at = fs::canonicalize(below.path()).ok()?;
        }
    }
}

/// A folder for the load that lies on a disk of this machine, and the disk; none where the machine has none.
fn on_a_disk() -> (tempfile::TempDir, Option<String>) {
    let places = [
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        PathBuf::from("/var/tmp"),
        std::env::temp_dir(),
    ];
    for place in &places {
        if let Some(disk) = disk_of(place)
            && let Ok(dir) = tempfile::tempdir_in(place)
        {
            return (dir, Some(disk));
        }
    }
    let disks: Vec<String> = fs::read_dir("/sys/block")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .filter(|name| Path::new("/sys/block").join(name).join("device").exists())
        .collect();
    assert!(
        disks.is_empty(),
        "none of {places:?} lies on one of the disks {disks:?}: set TMPDIR to a folder that does"
    );
    (tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), None)
}

#[test]
fn under_load_every_figure_is_of_this_node_and_of_the_interval_within_five_points() {
    let (dir, disk_name) = on_a_disk();
    // The loopback device tells no speed: here it is a gigabit.
    let lo = dir.path().join("sys/class/net/lo");
    fs::create_dir_all(lo.join("device")).unwrap();
    fs::write(lo.join("speed"), format!("{MEGABITS}\n")).unwrap();
    let with_speed = Roots {
        sys: dir.path().join("sys"),
        ..Roots::default()
    };
    let real = Roots::default();
    let exporter = Exporter::start();
    let _load = Load::start(dir.path());
    let mut speeds = LinkSpeeds::new(&with_speed);
    let (mut cpu, mut disk, mut network) = (
        CpuProbe::new(&real),
        DiskProbe::new(&real),
        NetworkProbe::new(&with_speed, &speeds),
    );
    std::thread::sleep(Duration::from_millis(500));
    assert!(cpu.utilization().is_none(), "nothing is known of an interval yet");
    let start = Instant::now();
    assert!(disk.busiest(start).is_none() && network.busiest(start).is_none());
    speeds.read();
    let first = kernel();
    let before = exporter.scrape();
    std::thread::sleep(WINDOW);
    let busy = f64::from(cpu.utilization().unwrap());
    let now = Instant::now();
    let (busiest, link) = (disk.busiest(now), network.busiest(now).unwrap());
    let last = kernel();
    let after = exporter.scrape();
    let memory = MemoryProbe::new(&real).read().unwrap();
    let uptime = HostProbe::new(&real).uptime().unwrap();

    let seconds = last.at.duration_since(first.at).as_secs_f64();
    near(
        "CPU",
        busy,
        100.0 * (last.busy - first.busy) / (last.total - first.total),
    );
    let sent = 100.0 * (last.sent - first.sent) * 8.0 / 1e6 / seconds / MEGABITS;
    assert_eq!(link.device, "lo");
    near("network", f64::from(link.percent), sent.min(100.0));
    assert!(link.percent > 0);
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |name: &str| numbers(text.lines().find(|l| l.starts_with(name)).unwrap())[0];
    let used = 100.0 * (1.0 - kib("MemAvailable:") / kib("MemTotal:"));
    near("memory", f64::from(Memory::utilization(&memory).unwrap()), used);
    // Of the host, not of this process.
    let host = numbers(&fs::read_to_string("/proc/uptime").unwrap())[0];
    assert!((uptime as f64 - host).abs() <= 2.0, "{uptime} {host}");

    let delta = |name: &str, label: &str| sum(&after, name, label) - sum(&before, name, label);
    let idle =
        delta("node_cpu_seconds_total", "mode=\"idle\"") + delta("node_cpu_seconds_total", "mode=\"iowait\"");
    near(
        "CPU beside the exporter",
        busy,
        100.0 * (1.0 - idle / delta("node_cpu_seconds_total", "cpu=")),
    );
    let free =
        sum(&after, "node_memory_MemAvailable_bytes", "") / sum(&after, "node_memory_MemTotal_bytes", "");
    near(
        "memory beside the exporter",
        f64::from(Memory::utilization(&memory).unwrap()),
        100.0 * (1.0 - free),
    );
    let received =
        delta("node_network_transmit_bytes_total", "device=\"lo\"") * 8.0 / 1e6 / seconds / MEGABITS;
    near(
        "network beside the exporter",
        f64::from(link.percent),
        100.0 * received.min(1.0),
    );
    let Some(name) = disk_name else {
        // No physical disk: absent, not 0.
        assert_eq!(busiest, None);
        return;
    };
    let ours = busiest.unwrap_or_else(|| panic!("{name} is under load, and nothing is said of any disk"));
    let used = |disk: &str| {
        let ms = last.disk_ms[disk] - first.disk_ms[disk];
        (100.0 * ms / 1000.0 / seconds).min(100.0)
    };
    let percent = f64::from(ours.percent);
    assert!(
        used(&name) > 0.0 && ours.percent > 0,
        "{name} is under load: {} % by the kernel, {ours:?} here",
        used(&name)
    );
    // Another disk may be the busiest where there are several; none that is idler than the one under load.
    assert!(
        ours.device == name || percent + POINTS >= used(&name),
        "{ours:?}, and {name} has {} %",
        used(&name)
    );
    near(&format!("disk {}", ours.device), percent, used(&ours.device));
    let label = format!("device=\"{}\"", ours.device);
    let io = delta("node_disk_io_time_seconds_total", &label);
    near(
        "disk beside the exporter",
        percent,
        100.0 * (io / seconds).min(1.0),
    );
}

/// Name and labels, whatever their order, with the value; and each family's type.
type Samples = (
    BTreeMap<(String, BTreeSet<String>), f64>,
    BTreeMap<String, String>,
);

fn samples(metrics: &str) -> Samples {
    let (mut values, mut types) = (BTreeMap::new(), BTreeMap::new());
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            types.insert(name.to_owned(), kind.to_owned());
        } else if let Some((name, value)) = line.rsplit_once(' ').filter(|_| line.starts_with("node_")) {
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            // No label here holds a comma before a quote.
            let labels = labels.trim_end_matches('}').split("\",");
            let labels = labels.map(|l| l.trim_end_matches('"').to_owned()).collect();
            if let Ok(value) = value.parse() {
                values.insert((name.to_owned(), labels), value);
            }
        }
    }
    (values, types)
}

#[tokio::test]
async fn metrics_with_the_exporters_names_have_its_labels_types_and_values() {
    let gateway = gateway::Gateway::start().await;
    let home = gateway::Home::new();
    gateway::registered(&gateway, &home).await;
    let config = home.configure(&[gateway.url()], None);
    let held = gateway::Port::free();
    let port = held.number();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        text.replace("{listen: 'off'}", &format!("{{listen: '127.0.0.1:{port}'}}")),
    )
    .unwrap();
    let mut agent = tokio::process::Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
        .args(["run", "--config"])
        .arg(&config)
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    gateway.until_heartbeats(1).await;
    let exporter = Exporter::start();
    let (ours, our_types) = samples(&scrape(port));
    let (theirs, their_types) = samples(&exporter.scrape());
    agent.kill().await.unwrap();
    assert!(ours.len() >= 9, "{ours:?}");
    for ((name, labels), value) in &ours {
        assert_eq!(our_types.get(name), their_types.get(name), "{name}");
        let key = (name.clone(), labels.clone());
        let other = theirs.get(&key).unwrap_or_else(|| {
            let same: Vec<_> = theirs.keys().filter(|(n, _)| n == name).collect();
            panic!("{name} {labels:?} is not among {same:?}")
        });
        let tolerance = match name.as_str() {
            // Taken up to half a minute apart, on a machine that compiles meanwhile.
            "node_load1" | "node_load5" | "node_load15" => 5.0,
            "node_time_seconds" => 5.0,
            "node_memory_MemAvailable_bytes" => other * 0.25,
            "node_filesystem_avail_bytes" | "node_filesystem_free_bytes" => other * 0.05,
            _ => 0.0,
        };
        assert!(
            (value - other).abs() <= tolerance,
            "{name}: {value} here, {other} there"
        );
    }
}
