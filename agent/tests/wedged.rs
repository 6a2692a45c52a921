//! A dead file server, a slow disk and a wedged driver beside a running agent: a FUSE mount whose server never answers,
//! another one whose `fsync` takes its time, a GPU probe that is stopped in its library.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;
mod slow;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::time::{Duration, Instant};

use gateway::{Gateway, Home, order, read, stand_in};
use hpc_schema::command::AcknowledgementStatus;
use hpc_schema::gateway::ConfigUpdates;
use hpc_schema::heartbeat::{HealthStatus, JobId, SlurmState, VerifiedHeartbeat};
use hpc_schema::registry::JobIds;
use slow::SlowDisk;
use tokio::process::{Child, Command};
use virtengine_node_agent::state::Status;

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
        stand_in(&folder.join(name), &format!("#!/bin/sh\necho '{says}'\n"));
    }
}

fn point(link: &Path, target: &Path) {
    std::fs::remove_file(link).ok();
    std::os::unix::fs::symlink(target, link).unwrap();
}

/// A link of this name, the folder that it leads to, and the one that will hang.
fn linked(home: &Home, name: &str) -> (PathBuf, PathBuf, PathBuf) {
    let (link, real, frozen) = (home.path(name), home.path("real"), home.path("frozen"));
    for folder in [&real, &frozen] {
        std::fs::create_dir(folder).unwrap();
    }
    point(&link, &real);
    (link, real, frozen)
}

/// From here on CA and certificate lie where they do by default: in the state directory.
fn in_the_state_directory(config: &Path) {
    let tls = ["  tls:", "    ca_cert:", "    client_cert:", "    client_key:"];
    let text = read(config);
    let kept: Vec<&str> = text
        .lines()
        .filter(|l| !tls.iter().any(|key| l.starts_with(key)))
        .collect();
    assert_eq!(kept.len() + tls.len(), text.lines().count());
    std::fs::write(config, kept.join("\n") + "\n").unwrap();
}

/// The agent in a mount namespace of its own, in which `frozen` is a FUSE file system. Its server would be whoever
/// holds the agent's standard input: nobody reads it, so every question waits for ever.
fn start(config: &Path, frozen: &Path) -> Child {
    start_with(&device(), config, frozen)
}

fn device() -> File {
    File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .expect("/dev/fuse is needed")
}

/// Its server says at last that there will be no file system: whoever waits for it is told.
fn thaw(mut fuse: &File) {
    let mut question = vec![0; 1 << 17];
    let n = fuse.read(&mut question).unwrap();
    assert!(n >= 16, "the kernel's first question");
    // Length, error, and the number of the question.
    let mut answer = 16u32.to_ne_bytes().to_vec();
    answer.extend((-5i32).to_ne_bytes());
    answer.extend(&question[8..16]);
    fuse.write_all(&answer).unwrap();
}

fn start_with(fuse: &File, config: &Path, frozen: &Path) -> Child {
    mounting(fuse, config, frozen, "")
}

/// `input` says where its standard input comes from, if not from the device.
fn mounting(fuse: &File, config: &Path, frozen: &Path, input: &str) -> Child {
    let root = rustix::process::geteuid().is_root();
    let mount = "mount -i -t fuse -o fd=0,rootmode=40000,user_id=0,group_id=0 frozen \"$0\" && exec \"$1\" run --config \"$2\"";
    Command::new("unshare")
        .args(if root { &["-m"][..] } else { &["-rm"][..] })
        .args(["sh", "-c", &format!("{mount} {input}")])
        .args([frozen, Path::new(AGENT), config])
        .stdin(Stdio::from(fuse.try_clone().unwrap()))
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

fn none_was_late(gateway: &Gateway) {
    let arrived = gateway.seen().arrived.clone();
    let gap = arrived.windows(2).map(|w| w[1] - w[0]).max().unwrap();
    assert!(gap <= INTERVAL + LATE, "no heartbeat for {gap:?}");
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
    let text = read(&config).replace(
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

    let fuse = device();
    let agent = start_with(&fuse, &config, &frozen);
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
    let soon = gateway.last().capacity;
    assert!(
        soon.storage_gb_total.is_some(),
        "the figure from before is good for a while"
    );
    // GPUs are stale after 30 s, storage after 60.
    while wedged.elapsed() < Duration::from_secs(75) {
        let n = gateway.seen().heartbeats.len();
        gateway.until_heartbeats(n + 1).await;
    }
    let end = gateway.last();
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
    let status = read(&home.path("state/status.json"));
    assert!(status.contains("Slurm's programs hang"), "{status}");
    let findings = gateway::status(&home).findings;
    assert!(
        findings
            .iter()
            .any(|f| f.starts_with("collector_stuck: storage does not answer")),
        "{findings:?}"
    );
    let log = read(&frozen.with_extension("log"));
    assert!(
        log.contains("collector=\"storage\"") && log.contains("has not answered"),
        "{log}"
    );
    none_was_late(&gateway);

    // Mended, all of it comes back by itself, and the finding goes.
    point(&storage, home.dir.path());
    point(&nvml, &library(home.dir.path(), &["GPUS=4"]));
    point(&slurm, &programs);
    thaw(&fuse);
    gateway
        .until("figures again", |s| {
            s.heartbeats.last().is_some_and(|h| {
                let c = &h.heartbeat.capacity;
                c.storage_gb_total.is_some() && c.gpus_total == Some(4) && c.cpu_cores_available > 0
            })
        })
        .await;
    until("status without it", Duration::from_secs(30), || {
        let status = gateway::status(&home);
        let stuck = |f: &String| f.starts_with("collector_stuck");
        status.stuck_collectors.is_empty() && !status.findings.iter().any(stuck)
    })
    .await;
    stop(agent, &config).await;
}

#[tokio::test]
async fn a_state_directory_that_hangs_delays_no_heartbeat_and_a_start_on_it_ends_with_its_name() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let home = Home::new();
    let (state, real, frozen) = linked(&home, "state");
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    in_the_state_directory(&config);
    let log = || read(&frozen.with_extension("log"));
    let mut agent = start(&config, &frozen);
    gateway.until_heartbeats(1).await;
    assert!(real.join("tls/ca.crt").exists());
    point(&state, &frozen);
    // Nothing is begun that cannot be kept.
    gateway
        .behaviour()
        .commands
        .push(order("d1", "run_diagnostic", r#"{"name":"health"}"#));
    let hung = Instant::now();
    while hung.elapsed() < Duration::from_secs(45) {
        let n = gateway.seen().heartbeats.len();
        gateway.until_heartbeats(n + 1).await;
    }
    assert_eq!(gateway.last().health.status, HealthStatus::Degraded, "{}", log());
    assert!(log().contains("collector=\"state directory\""), "{}", log());
    assert!(
        log().contains("orders cannot be kept, and are not begun"),
        "{}",
        log()
    );
    none_was_late(&gateway);

    // It says goodbye and ends in time all the same.
    let pid = i32::try_from(agent.id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), agent.wait()).await;
    assert_eq!(
        end.expect("within five seconds").unwrap().code(),
        Some(0),
        "{}",
        log()
    );
    assert_eq!(gateway.last().health.status, HealthStatus::Offline);

    let mut agent = start(&config, &frozen);
    let end = tokio::time::timeout(Duration::from_secs(20), agent.wait()).await;
    assert_eq!(
        end.expect("a start is bounded").unwrap().code(),
        Some(1),
        "{}",
        log()
    );
    let text = log();
    assert!(
        text.contains("agent.state_dir") && text.contains("has not answered within"),
        "{text}"
    );
}

/// Waits until `good`, while heartbeats go on.
async fn until(what: &str, within: Duration, good: impl Fn() -> bool) {
    let start = Instant::now();
    while !good() {
        assert!(start.elapsed() < within, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn what_a_hung_state_directory_did_not_take_is_kept_once_it_answers_again() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    // Due for renewal after 20 s.
    gateway.behaviour().certificate_life = Duration::from_secs(30);
    let home = Home::new();
    let (state, real, frozen) = linked(&home, "state");
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    in_the_state_directory(&config);
    let log = || read(&frozen.with_extension("log"));
    let fuse = device();
    let mut agent = start_with(&fuse, &config, &frozen);
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
    gateway.until_heartbeats(1).await;
    assert!(real.join("tls/ca.crt").exists());
    point(&state, &frozen);
    gateway.behaviour().certificate_life = Duration::from_secs(24 * 3600);
    gateway.behaviour().config_updates = Some(ConfigUpdates {
        job_ids: Some(JobIds::Plain),
        ..ConfigUpdates::default()
    });
    gateway
        .until("a renewal while it hangs", |s| s.renewals == 1)
        .await;
    // Read again, with other collectors and the certificates that lie there.
    let text = read(&config).replace(
        "agent:\n",
        &format!("agent:\n  storage_path: {}\n", real.display()),
    );
    std::fs::write(&config, text).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    until("the reload", Duration::from_secs(20), || {
        log().contains("configuration reloaded")
    })
    .await;
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 3).await;
    assert_eq!(gateway.last().health.status, HealthStatus::Degraded, "{}", log());
    let (certificate, registration) = (real.join("tls/client.pem"), real.join("registration.json"));
    assert!(!certificate.exists() && !read(&registration).contains("plain"));

    point(&state, &real);
    thaw(&fuse);
    until("the certificate", Duration::from_secs(30), || {
        certificate.exists()
    })
    .await;
    until("the setting of job ids", Duration::from_secs(30), || {
        read(&registration).contains("plain")
    })
    .await;
    assert_eq!(gateway.seen().renewals, 1, "that very certificate");
    until("status without it", Duration::from_secs(20), || {
        let status = gateway::status(&home);
        let stuck = |f: &String| f.starts_with("collector_stuck");
        status.stuck_collectors.is_empty() && !status.findings.iter().any(stuck)
    })
    .await;
    // Reports of diagnostics go the same way.
    gateway
        .behaviour()
        .commands
        .push(order("d1", "run_diagnostic", r#"{"name":"health"}"#));
    until("the report", Duration::from_secs(30), || {
        std::fs::read_dir(real.join("diagnostics")).is_ok_and(|d| d.count() == 1)
    })
    .await;
    none_was_late(&gateway);
    assert_eq!(gateway.seen().recoveries, 0);

    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), agent.wait()).await;
    assert_eq!(end.expect("in time").unwrap().code(), Some(0), "{}", log());
    // The next start has what was kept.
    let kept = read(&certificate);
    let agent = start(&config, &frozen);
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    assert_eq!((gateway.seen().renewals, read(&certificate)), (1, kept));
    stop(agent, &config).await;
}

#[tokio::test]
async fn a_drain_that_slurm_tells_while_the_state_directory_hangs_is_told_on_and_kept_once_it_answers() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let home = Home::new();
    let (state, real, frozen) = linked(&home, "state");
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let slurm = home.path("slurm");
    batch_system(&slurm);
    let slurm_here = format!(
        "slurm: {{enabled: true, node_name: node042, bin_dir: {}}}\n",
        slurm.display()
    );
    let text = read(&config).replace("slurm: {enabled: false}\n", &slurm_here);
    std::fs::write(&config, text + "  capacity_interval: 10s\n").unwrap();
    let fuse = device();
    let agent = start_with(&fuse, &config, &frozen);
    gateway
        .until("what Slurm has free", |s| {
            let free = |h: &VerifiedHeartbeat| h.heartbeat.capacity.cpu_cores_available > 0;
            s.heartbeats.last().is_some_and(free) && real.join("slurm.json").exists()
        })
        .await;
    point(&state, &frozen);
    let node = read(&slurm.join("scontrol")).replace("State=MIXED", "State=MIXED+DRAIN Reason=disk");
    stand_in(&slurm.join("scontrol"), &node);
    gateway
        .until("the drain", |s| {
            let health = s.heartbeats.last().map(|h| &h.heartbeat.health);
            health.is_some_and(|h| h.slurm_state == Some(SlurmState::Drain))
        })
        .await;
    assert_eq!(gateway.last().health.status, HealthStatus::Draining);
    let kept = || read(&real.join("slurm.json"));
    assert!(!kept().contains("DRAIN"), "{}", kept());
    // Nor does Slurm's own collector hang by it: what Slurm says next is told, too.
    let fewer = node
        .replace("CPUTot=4", "CPUTot=3")
        .replace("CPUEfctv=4", "CPUEfctv=3");
    stand_in(&slurm.join("scontrol"), &fewer);
    gateway
        .until("Slurm's next word", |s| {
            let last = s.heartbeats.last().map(|h| h.heartbeat.capacity.cpu_cores_total);
            last == Some(3)
        })
        .await;
    assert_eq!(gateway.last().health.slurm_state, Some(SlurmState::Drain));
    none_was_late(&gateway);

    point(&state, &real);
    thaw(&fuse);
    until("the drain on the disk", Duration::from_secs(30), || {
        kept().contains("DRAIN")
    })
    .await;
    stop(agent, &config).await;
}

#[tokio::test]
async fn a_configuration_that_hangs_delays_no_heartbeat_and_no_end() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let home = Home::new();
    let (folder, real, frozen) = linked(&home, "etc");
    let made = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    std::fs::rename(made, real.join("config.yaml")).unwrap();
    let config = folder.join("config.yaml");
    let log = || read(&frozen.with_extension("log"));
    let fuse = device();
    let mut agent = start_with(&fuse, &config, &frozen);
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
    let hangup = || rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let reloads = || log().matches("configuration reloaded").count();
    gateway.until_heartbeats(1).await;
    hangup();
    until("the reload", Duration::from_secs(20), || reloads() == 1).await;

    point(&folder, &frozen);
    hangup();
    let hung = Instant::now();
    while hung.elapsed() < Duration::from_secs(25) {
        let n = gateway.seen().heartbeats.len();
        gateway.until_heartbeats(n + 1).await;
    }
    let said = || {
        log()
            .matches("has not answered within 10s; its file system hangs")
            .count()
    };
    assert_eq!((said(), reloads()), (1, 1), "{}", log());
    let text = log();
    for word in [
        "the former one stays in force",
        config.to_str().unwrap(),
        "agent.registration_token_file",
        "findmnt -T",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    none_was_late(&gateway);

    // It answers, though with an error: that is said too, and the next one is read.
    point(&folder, &real);
    thaw(&fuse);
    until("the answer", Duration::from_secs(30), || {
        let text = log();
        text.contains("has answered after") && text.matches("configuration not reloaded").count() == 2
    })
    .await;
    hangup();
    until("another reload", Duration::from_secs(20), || reloads() == 2).await;
    none_was_late(&gateway);
    stop(agent, &config).await;

    // Told to end while it hangs.
    let n = gateway.seen().heartbeats.len();
    agent = start(&config, &frozen);
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
    gateway.until_heartbeats(n + 1).await;
    point(&folder, &frozen);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), agent.wait()).await;
    assert_eq!(end.expect("in time").unwrap().code(), Some(0), "{}", log());
    assert_eq!(gateway.last().health.status, HealthStatus::Offline);
}

#[tokio::test]
async fn a_log_file_that_hangs_delays_no_heartbeat_and_another_takes_its_lines() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let home = Home::new();
    let (logs, real, frozen) = linked(&home, "logs");
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let logging = |folder: &Path| {
        let text = read(&config);
        let (text, _) = text.split_once("logging:").unwrap_or((&text, ""));
        let new = format!(
            "{text}logging: {{file: {}}}\n",
            folder.join("agent.log").display()
        );
        std::fs::write(&config, new).unwrap();
    };
    logging(&logs);
    let (file, errors) = (real.join("agent.log"), || read(&frozen.with_extension("log")));
    let mut agent = start(&config, &frozen);
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
    let hangup = || rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    gateway.until_heartbeats(1).await;
    hangup();
    let reloads = |file: &Path| read(file).matches("configuration reloaded").count();
    until("the reload", Duration::from_secs(20), || reloads(&file) == 1).await;

    // It is opened anew where nothing answers.
    point(&logs, &frozen);
    hangup();
    let hung = Instant::now();
    while hung.elapsed() < Duration::from_secs(25) {
        let n = gateway.seen().heartbeats.len();
        gateway.until_heartbeats(n + 1).await;
    }
    hangup();
    until("a word of it", Duration::from_secs(20), || {
        errors().contains("logging.file does not answer")
    })
    .await;
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    assert_eq!(reloads(&file), 1);
    none_was_late(&gateway);

    // The operator names another.
    let other = home.path("other");
    logging(&other);
    hangup();
    let file = other.join("agent.log");
    until("its lines", Duration::from_secs(20), || {
        file.exists() && reloads(&file) == 3
    })
    .await;

    // Hanging again, it holds up no end either; the last lines are with the service manager.
    logging(&logs);
    hangup();
    let n = gateway.seen().heartbeats.len();
    gateway.until_heartbeats(n + 1).await;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), agent.wait()).await;
    assert_eq!(end.expect("in time").unwrap().code(), Some(0), "{}", errors());
    assert!(errors().contains("configuration reloaded"), "{}", errors());
    none_was_late(&gateway);
}

#[tokio::test]
async fn a_folder_of_tasks_that_hangs_delays_no_heartbeat_and_what_tasks_hold_stays() {
    let gateway = Gateway::start().await;
    gateway.behaviour().next_heartbeat_seconds = 10;
    let home = Home::new();
    home.calm();
    let (tasks, real, frozen) = linked(&home, "tasks");
    let holdings = real.join("holdings.json");
    let all_memory =
        r#"{"kind":"vm","name":"vm-1","task_id":"task-1","since":1,"facts":{"memory_mib":1073741824}}"#;
    let runs = r#"{"kind":"vm","name":"vm-1","task_id":"task-1"}"#;
    std::fs::write(
        &holdings,
        format!(r#"{{"holdings":[{all_memory}],"running":[{runs}]}}"#),
    )
    .unwrap();
    let runs_still = |what: &str| {
        let jobs = gateway.last().jobs.unwrap_or_default();
        let ids: Vec<&str> = jobs.active_job_ids.iter().map(JobId::as_str).collect();
        assert_eq!((jobs.running_count, ids), (Some(1), vec!["vm-1"]), "{what}");
    };
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let text = read(&config) + &format!("tasks: {{dir: {}}}\n", tasks.display());
    std::fs::write(&config, text).unwrap();
    let log = || read(&frozen.with_extension("log"));
    let fuse = device();
    let agent = start_with(&fuse, &config, &frozen);
    gateway.until_heartbeats(1).await;
    assert_eq!(
        gateway.last().capacity.memory_gb_available,
        0,
        "a task has all of it"
    );
    assert_eq!(gateway.last().health.status, HealthStatus::Healthy, "{}", log());
    runs_still("a machine is work");

    point(&tasks, &frozen);
    let hung = Instant::now();
    while hung.elapsed() < Duration::from_secs(35) {
        let n = gateway.seen().heartbeats.len();
        gateway.until_heartbeats(n + 1).await;
    }
    assert_eq!(
        gateway.last().capacity.memory_gb_available,
        0,
        "the last word counts"
    );
    assert!(log().contains("(tasks.dir) does not answer"), "{}", log());
    let status = gateway::status(&home);
    let stuck = |f: &String| f.starts_with("collector_stuck: tasks folder does not answer");
    assert!(status.findings.iter().any(stuck), "{status:?}");
    assert_eq!(gateway.last().health.status, HealthStatus::Degraded);
    runs_still("while the folder hangs");
    none_was_late(&gateway);

    // The folder is back, and the task is not.
    std::fs::remove_file(&holdings).unwrap();
    point(&tasks, &real);
    thaw(&fuse);
    gateway
        .until("memory", |s| {
            let last = s.heartbeats.last();
            last.is_some_and(|h| h.heartbeat.capacity.memory_gb_available > 0)
        })
        .await;
    assert!(log().contains("what tasks hold can be read again"), "{}", log());
    until("status without it", Duration::from_secs(30), || {
        !gateway::status(&home).findings.iter().any(stuck)
    })
    .await;
    stop(agent, &config).await;
    // Nobody has said that the machine is gone.
    let n = gateway.seen().heartbeats.len();
    let agent = start(&config, &frozen);
    gateway.until_heartbeats(n + 1).await;
    runs_still("over a restart, and without a file");
    stop(agent, &config).await;

    point(&tasks, &frozen);
    let mut agent = start(&config, &frozen);
    let end = tokio::time::timeout(Duration::from_secs(20), agent.wait()).await;
    assert_eq!(end.expect("a start is bounded").unwrap().code(), Some(1));
    assert!(log().contains("tasks.dir"), "{}", log());
}

/// An agent whose state directory lies on a slow disk.
struct OnSlowDisk {
    gateway: Gateway,
    home: Home,
    config: PathBuf,
    disk: SlowDisk,
}

impl OnSlowDisk {
    /// One that has sent its first heartbeat while the disk was quick, and comes to rest.
    async fn start() -> (Self, Child) {
        let gateway = Gateway::start().await;
        gateway.behaviour().next_heartbeat_seconds = 10;
        let home = Home::new();
        home.calm();
        let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
        std::fs::create_dir(home.path("state")).unwrap();
        let site = Self {
            gateway,
            home,
            config,
            disk: SlowDisk::new(),
        };
        let agent = site.run();
        let kept = || site.status().is_some_and(|s| s.accepted > 0);
        until("a heartbeat and its status", Duration::from_secs(60), kept).await;
        (site, agent)
    }

    /// Whoever ends this process ends its disk: nobody waits for that then.
    fn run(&self) -> Child {
        let fuse = device();
        let agent = mounting(&fuse, &self.config, &self.home.path("state"), "</dev/null");
        self.disk.serve(fuse);
        agent
    }

    fn status(&self) -> Option<Status> {
        serde_json::from_str(&self.disk.read("status.json")?).ok()
    }

    fn log(&self) -> String {
        read(&self.home.path("state.log"))
    }

    /// What the gateway wants from here on.
    fn wants_plain_job_ids(&self) {
        self.gateway.behaviour().config_updates = Some(ConfigUpdates {
            job_ids: Some(JobIds::Plain),
            ..ConfigUpdates::default()
        });
    }

    async fn until_kept_plain(&self) {
        let plain = || {
            let kept = self.disk.read("registration.json");
            kept.is_some_and(|text| text.contains("plain"))
        };
        until("the setting of job ids", Duration::from_secs(60), plain).await;
    }

    /// SIGTERM: a last heartbeat, and exit 0 in time.
    async fn ends_well(&self, mut agent: Child) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(agent.id().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let end = tokio::time::timeout(Duration::from_secs(5), agent.wait()).await;
        let code = end.expect("within five seconds").unwrap().code();
        assert_eq!(code, Some(0), "{}", self.log());
        assert_eq!(self.gateway.last().health.status, HealthStatus::Offline);
    }
}

#[tokio::test]
async fn the_end_begins_nothing_that_it_would_have_to_wait_for_on_a_slow_disk_and_leaves_no_gap() {
    let (site, agent) = OnSlowDisk::start().await;
    site.disk.takes(Duration::from_secs(20));
    let before = site.disk.syncs();
    // The answer to the last heartbeat brings what must be kept.
    let health = order("d1", "run_diagnostic", r#"{"name":"health"}"#);
    site.gateway.behaviour().commands.push(health);
    site.wants_plain_job_ids();
    site.ends_well(agent).await;
    assert_eq!(site.disk.syncs(), before, "{}", site.log());
    let last = site.gateway.seen().sequences.last().copied();
    let kept = site.status().unwrap();
    assert!(kept.stopped_at.is_some());
    assert_eq!(Some(kept.sequence), last);
    assert!(kept.orders.is_empty(), "not taken: {:?}", kept.orders);

    // It is told again, to a quicker one.
    site.disk.takes(Duration::ZERO);
    let agent = site.run();
    site.gateway
        .until("the outcome of the order", |s| {
            s.acknowledgements
                .iter()
                .any(|a| a.command_id == "d1" && a.status == AcknowledgementStatus::Done)
        })
        .await;
    site.until_kept_plain().await;
    let numbers = site.gateway.seen().sequences.clone();
    assert!(numbers.windows(2).all(|w| w[0] + 1 == w[1]), "{numbers:?}");
    stop(agent, &site.config).await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_what_a_slow_disk_has_begun_and_no_number_is_used_again() {
    let (site, agent) = OnSlowDisk::start().await;
    site.disk.takes(Duration::from_secs(2));
    let before = site.disk.syncs();
    site.wants_plain_job_ids();
    let writes = || site.disk.syncs() > before;
    until("a write that waits", Duration::from_secs(60), writes).await;
    site.ends_well(agent).await;
    let log = site.log();
    assert!(log.contains("its last words are not kept"), "{log}");

    site.disk.takes(Duration::ZERO);
    let count = site.gateway.seen().heartbeats.len();
    let agent = site.run();
    site.gateway.until_heartbeats(count + 2).await;
    site.until_kept_plain().await;
    let numbers = site.gateway.seen().sequences.clone();
    assert!(numbers.windows(2).all(|w| w[0] < w[1]), "{numbers:?}");
    stop(agent, &site.config).await;
}
