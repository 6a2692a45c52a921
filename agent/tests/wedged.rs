//! A dead file server and a wedged driver beside a running agent: a FUSE mount whose server never answers, a GPU probe
//! that is stopped in its library.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::time::{Duration, Instant};

use gateway::{Gateway, Home};
use hpc_schema::heartbeat::{HealthStatus, Heartbeat};
use tokio::process::{Child, Command};

/// As `squeue` lists it here: id, state, end, nodes, required nodes, scheduled nodes.
const JOB: &str = "7|RUNNING|0|node042||(null)";
const AGENT: &str = env!("CARGO_BIN_EXE_virtengine-node-agent");
/// The shortest that the protocol allows.
const INTERVAL: Duration = Duration::from_secs(10);
/// A heartbeat waits this long for figures at most, and a busy machine is slow.
const LATE: Duration = Duration::from_secs(4);

/// The stand-in for NVIDIA's library.
fn library(dir: &Path, define: &[&str]) -> PathBuf {
    let path = dir.join(format!("nvml{}.so", define.len()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/nvml/stub.c");
    let status = Blocking::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&path, &source])
        .args(define.iter().map(|d| format!("-D{d}")))
        .status()
        .expect("a C compiler (Debian: gcc) is needed to build the stand-in");
    assert!(status.success());
    path
}

/// Stand-ins for Slurm's programs: a node with a job on a quarter of its cores.
fn batch_system(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let node = "NodeName=node042 CPUAlloc=1 CPUEfctv=4 CPUTot=4 RealMemory=4096 AllocMem=1024 State=MIXED";
    for (name, says) in [("scontrol", node), ("squeue", JOB)] {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

fn point(link: &Path, target: &Path) {
    std::fs::remove_file(link).ok();
    std::os::unix::fs::symlink(target, link).unwrap();
}

/// The agent in a mount namespace of its own, in which `frozen` is a FUSE file system. Its server would be whoever
/// holds the agent's standard input: nobody reads it, so every question waits for ever.
fn start(config: &Path, frozen: &Path) -> Child {
    let fuse = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .expect("/dev/fuse is needed");
    let root = rustix::process::geteuid().is_root();
    let mount = "mount -i -t fuse -o fd=0,rootmode=40000,user_id=0,group_id=0 frozen \"$0\" && exec \"$1\" run --config \"$2\"";
    Command::new("unshare")
        .args(if root { &["-m"][..] } else { &["-rm"][..] })
        .args(["sh", "-c", mount])
        .args([frozen, Path::new(AGENT), config])
        .stdin(Stdio::from(fuse))
        .stdout(Stdio::null())
        .stderr(Stdio::from(File::create(frozen.with_extension("log")).unwrap()))
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// SIGSTOP to the agent's GPU probe, once it runs.
async fn stop_probe() {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(40) {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = String::from_utf8_lossy(&line).contains("nvml-link.so");
            let pid = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok());
            if let Some(pid) = pid.filter(|_| ours) {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                // It may have ended meanwhile.
                if rustix::process::kill_process(pid, rustix::process::Signal::STOP).is_ok() {
                    return;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no GPU probe was started");
}

/// Ends the agent, and its children that hang on the mount before they have become another program: they hold what its
/// own threads wait for without end. A service manager ends the whole control group likewise.
async fn stop(mut agent: Child, config: &Path) {
    agent.start_kill().unwrap();
    let start = Instant::now();
    while agent.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = String::from_utf8_lossy(&line).contains(config.to_str().unwrap());
            let pid = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok());
            if let Some(pid) = pid.filter(|_| ours).and_then(rustix::process::Pid::from_raw) {
                // It may have ended meanwhile.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn last(gateway: &Gateway) -> Heartbeat {
    gateway.seen().heartbeats.last().unwrap().heartbeat.clone()
}

#[tokio::test]
async fn a_frozen_mount_and_a_stopped_helper_delay_no_heartbeat_and_their_figures_become_absent() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let home = Home::new();
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let (storage, frozen) = (home.path("storage"), home.path("frozen"));
    let nvml = home.path("nvml-link.so");
    std::fs::create_dir(&frozen).unwrap();
    point(&storage, home.dir.path());
    point(&nvml, &library(home.dir.path(), &["GPUS=4"]));
    let hanging = library(home.dir.path(), &["GPUS=4", "HANG"]);
    let text = gateway::read(&config).replace(
        "agent:\n",
        &format!("agent:\n  storage_path: {}\n", storage.display()),
    );
    let gpu = format!("gpu: {{enabled: true, nvml_library: {}}}\n", nvml.display());
    let (programs, slurm) = (home.path("programs"), home.path("slurm-link"));
    batch_system(&programs);
    point(&slurm, &programs);
    let slurm_here = format!(
        "slurm: {{enabled: true, node_name: node042, bin_dir: {}}}\n",
        slurm.display()
    );
    let text = text.replace("slurm: {enabled: false}\n", &slurm_here);
    std::fs::write(&config, text + &gpu).unwrap();

    let agent = start(&config, &frozen);
    gateway
        .until("a heartbeat with storage and GPUs", |s| {
            s.heartbeats.last().is_some_and(|h| {
                let c = &h.heartbeat.capacity;
                let running = h.heartbeat.jobs.as_ref().and_then(|j| j.running_count);
                let free = c.cpu_cores_available > 0;
                c.storage_gb_total.is_some() && c.gpus_total == Some(4) && free && running == Some(1)
            })
        })
        .await;
    point(&storage, &frozen);
    point(&nvml, &hanging);
    point(&slurm, &frozen);
    let wedged = Instant::now();
    stop_probe().await;
    let count = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(count + 1).await;
    let soon = last(&gateway).capacity;
    assert!(
        soon.storage_gb_total.is_some(),
        "the figure from before is good for a while"
    );
    // GPUs are stale after 30 s, storage after 60.
    while wedged.elapsed() < Duration::from_secs(75) {
        let n = gateway.seen().heartbeats.len();
        gateway.until_heartbeats(n + 1).await;
    }
    let end = last(&gateway);
    assert_eq!(end.capacity.storage_gb_total, None);
    // Unknown, not gone: the machine of the test has none on its bus, but there were four.
    assert_eq!(
        (end.capacity.gpus_total, end.capacity.gpus_available),
        (None, None)
    );
    // A batch system whose programs hang: nothing is known to be free.
    assert_eq!(
        (end.capacity.cpu_cores_available, end.capacity.memory_gb_available),
        (0, 0)
    );
    assert_eq!(
        end.jobs.as_ref().and_then(|j| j.running_count),
        Some(1),
        "the job that ran goes on running"
    );
    assert_eq!(end.health.gpu_utilization_percent, None);
    // Everything else goes on being measured.
    assert!(end.health.cpu_utilization_percent.is_some() && end.health.uptime_seconds.is_some());
    assert_eq!(end.health.status, HealthStatus::Degraded);
    let status = gateway::read(&home.path("state/status.json"));
    assert!(status.contains("Slurm's programs hang"), "{status}");
    let findings = gateway::status(&home).findings;
    assert!(
        findings
            .iter()
            .any(|f| f.starts_with("collector_stuck: storage does not answer")),
        "{findings:?}"
    );
    let log = gateway::read(&frozen.with_extension("log"));
    assert!(
        log.contains("collector=\"storage\"") && log.contains("has not answered"),
        "{log}"
    );
    let seen = gateway.seen().arrived.clone();
    let gap = seen.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(gap <= INTERVAL + LATE, "no heartbeat for {gap:?}");
    stop(agent, &config).await;
}
