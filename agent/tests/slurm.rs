//! The agent's view of a real Slurm: Debian's slurm-wlm and munge, one node, started here in a folder of its own.
//! Fails, and says so, where they are not installed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hpc_schema::heartbeat::SlurmState;
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::probe::services::ServicesProbe;
use virtengine_node_agent::probe::slurm::{Answer, JobsProbe, NodeProbe, SlurmConfig, SlurmJobs, SlurmNode};

const PATIENCE: Duration = Duration::from_secs(60);

/// Slurm's processes beside a job do not say whose controller they belong to: one site at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A controller, a node and munge; all end with it.
struct Site {
    _one: MutexGuard<'static, ()>,
    dir: tempfile::TempDir,
    node: String,
    children: Vec<Child>,
}

fn program(name: &str) -> PathBuf {
    ["/usr/sbin", "/usr/bin"]
        .iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.exists())
        .unwrap_or_else(|| panic!("{name} is not installed (Debian: apt-get install slurm-wlm munge)"))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Site {
    fn start() -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let node = fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap()
            .trim()
            .split('.')
            .next()
            .unwrap()
            .to_owned();
        for folder in ["munge", "state", "spool"] {
            fs::create_dir(path.join(folder)).unwrap();
        }
        fs::write(path.join("munge/key"), [42u8; 128]).unwrap();
        for private in [path.join("munge/key"), path.clone(), path.join("munge")] {
            let mode = if private.is_dir() { 0o755 } else { 0o400 };
            fs::set_permissions(private, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        let (controller, daemon) = (free_port(), free_port());
        let at = |name: &str| path.join(name).display().to_string();
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let conf = format!(
            "ClusterName=probe\nSlurmctldHost={node}(127.0.0.1)\nSlurmUser={}\nSlurmdUser={}\n\
             AuthType=auth/munge\nAuthInfo=socket={}\nSlurmctldPort={controller}\nSlurmdPort={daemon}\n\
             StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n\
             SlurmctldLogFile={}\nSlurmdLogFile={}\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nMpiDefault=none\nReturnToService=2\nMailProg=/bin/true\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nSchedulerParameters=sched_interval=2\n\
             NodeName={node} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN\n\
             PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE\n",
            user.trim(),
            user.trim(),
            at("munge/socket"),
            at("state"),
            at("spool"),
            at("ctld.pid"),
            at("d.pid"),
            at("ctld.log"),
            at("d.log"),
        );
        fs::write(path.join("slurm.conf"), conf).unwrap();
        let mut site = Self {
            _one: one,
            dir,
            node,
            children: Vec::new(),
        };
        site.spawn(
            "munged",
            &[
                "--foreground".into(),
                "--force".into(),
                format!("--key-file={}", at("munge/key")),
                format!("--socket={}", at("munge/socket")),
                format!("--pid-file={}", at("munge/pid")),
                format!("--log-file={}", at("munge/log")),
                format!("--seed-file={}", at("munge/seed")),
            ],
        );
        site.wait("munge's socket", |s| {
            s.dir.path().join("munge/socket").exists().then_some(())
        });
        site.spawn("slurmctld", &["-D".into(), "-f".into(), at("slurm.conf")]);
        site.spawn(
            "slurmd",
            &[
                "-D".into(),
                "-f".into(),
                at("slurm.conf"),
                "-N".into(),
                site.node.clone(),
            ],
        );
        site.wait("an idle node", |s| {
            (s.node()?.state == SlurmState::Idle).then_some(())
        });
        site
    }

    fn spawn(&mut self, name: &str, arguments: &[String]) {
        let log = fs::File::create(self.dir.path().join(format!("{name}.out"))).unwrap();
        let child = Command::new(program(name))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children.push(child);
    }

    fn wait<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            if Instant::now() > end {
                let log = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
                panic!(
                    "no {what} within {PATIENCE:?}\n{}\n{}\n{}",
                    log("ctld.log"),
                    log("d.log"),
                    log("slurmctld.out")
                );
            }
            sleep(Duration::from_millis(250));
        }
    }

    fn config(&self) -> SlurmConfig {
        SlurmConfig {
            conf: Some(self.dir.path().join("slurm.conf")),
            ..SlurmConfig::default()
        }
    }

    /// A fresh probe each time: none of them may rest on what it saw before.
    fn node(&self) -> Option<SlurmNode> {
        match NodeProbe::new(self.config(), &Roots::default()).read(Instant::now()) {
            Answer::Said(node) => Some(node),
            _ => None,
        }
    }

    fn probe(&self) -> JobsProbe {
        JobsProbe::new(
            self.config(),
            &Roots::default(),
            self.dir.path().join("jobs.json"),
        )
    }

    fn jobs(&self) -> SlurmJobs {
        match self.probe().read(Instant::now(), unix()) {
            Answer::Said(jobs) => jobs,
            other => panic!("{other:?}"),
        }
    }

    fn slurm(&self, name: &str, arguments: &[&str]) -> String {
        let output = Command::new(program(name))
            .args(arguments)
            .env("SLURM_CONF", self.dir.path().join("slurm.conf"))
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Submits a job of one core and gives its id.
    fn submit(&self, script: &str, more: &[&str]) -> u64 {
        let mut arguments = vec!["--parsable", "-n1", "--mem=100", "-o", "/dev/null"];
        arguments.extend(more);
        arguments.extend(["--wrap", script]);
        self.slurm("sbatch", &arguments).parse().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            child.kill().ok();
            child.wait().ok();
        }
        // Jobs outlive slurmd by design: end those of this site, which are the ones below its folder.
        let spool = self.dir.path().join("spool").display().to_string();
        let scripts: Vec<u32> = pids().filter(|p| command_line(*p).contains(&spool)).collect();
        for script in scripts {
            let work = pids().filter(|p| parent(*p) == Some(script));
            let all: Vec<u32> = work
                .chain([script])
                .chain(parent(script).filter(|p| is_step(*p)))
                .collect();
            for pid in all {
                Command::new("kill").args(["-9", &pid.to_string()]).output().ok();
            }
        }
    }
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
}

fn command_line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

fn is_step(pid: u32) -> bool {
    command_line(pid).starts_with("slurmstepd: [")
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn jobs_are_followed_from_submission_to_their_end_and_a_drain_is_seen() {
    let site = Site::start();
    let node = site.node().unwrap();
    assert_eq!(
        (
            node.cpus,
            node.cpus_allocated,
            node.memory_mib,
            node.memory_allocated_mib
        ),
        (2, 0, 2000, 0)
    );
    let none = site.jobs();
    assert_eq!(
        (
            none.active.len(),
            none.pending,
            none.ended.completed,
            none.ended.failed
        ),
        (0, Some(0), 0, 0)
    );

    // One runs, one waits for this very node, one waits for any.
    let runs = site.submit("sleep 600", &[]);
    site.wait("running job", |s| (s.jobs().active == [runs]).then_some(()));
    let node = site.node().unwrap();
    assert_eq!(
        (node.state, node.cpus_allocated, node.memory_allocated_mib),
        (SlurmState::Mixed, 1, 100)
    );
    let waits = site.submit("true", &["-n2", "--exclusive", "-w", &site.node]);
    site.submit("true", &["-n2", "--exclusive", "--begin=now+1hour"]);
    site.wait("waiting job", |s| (s.jobs().pending == Some(1)).then_some(()));

    // It fails, one succeeds, one is cancelled: each counts as what it is, once.
    site.slurm("scancel", &[&waits.to_string()]);
    let fails = site.submit("exit 3", &[]);
    let succeeds = site.submit("true", &[]);
    site.wait("ends", |s| {
        let j = s.jobs();
        (j.active == [runs] && (j.ended.completed, j.ended.failed) == (1, 1)).then_some(())
    });
    assert!(fails < succeeds);

    // Drained by the site's administrator while the job runs.
    site.slurm(
        "scontrol",
        &[
            "update",
            &format!("nodename={}", site.node),
            "state=drain",
            "reason=new disk",
        ],
    );
    let node = site.wait("drain", |s| s.node().filter(|n| n.state == SlurmState::Drain));
    assert!(node.reason.unwrap().starts_with("new disk"));
    assert_eq!((node.cpus_allocated, site.jobs().active), (1, vec![runs]));
    site.slurm("scancel", &[&runs.to_string()]);
    site.wait("empty node", |s| {
        let (node, jobs) = (s.node()?, s.jobs());
        (node.state == SlurmState::Drain && node.cpus_allocated == 0 && jobs.active.is_empty()).then_some(())
    });
    let ended = site.jobs().ended;
    assert_eq!(
        (ended.completed, ended.failed, ended.withdrawn, ended.unknown),
        (1, 1, 1, 0)
    );
    site.slurm(
        "scontrol",
        &["update", &format!("nodename={}", site.node), "state=resume"],
    );
    site.wait("idle node", |s| {
        (s.node()?.state == SlurmState::Idle).then_some(())
    });
}

#[test]
fn a_dead_controller_leaves_running_jobs_known_and_services_are_seen() {
    let mut site = Site::start();
    let services = ServicesProbe::new(&Roots::default(), None)
        .read(Instant::now())
        .services;
    assert_eq!(
        (services.slurmd_running, services.munge_running),
        (Some(true), Some(true))
    );
    let version = services.slurmd_version.unwrap().to_string();
    assert!(version.chars().next().unwrap().is_ascii_digit(), "{version}");

    let runs = site.submit("sleep 600", &[]);
    site.wait("running job", |s| (s.jobs().active == [runs]).then_some(()));
    let mut controller = site.children.remove(1);
    controller.kill().unwrap();
    controller.wait().unwrap();
    let start = Instant::now();
    assert_eq!(
        NodeProbe::new(site.config(), &Roots::default()).read(Instant::now()),
        Answer::Silent
    );
    let jobs = site.jobs();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(jobs.active.contains(&runs), "{jobs:?}");
    assert_eq!(jobs.pending, None);
}
