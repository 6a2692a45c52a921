//! A real Slurm: Debian's slurm-wlm and munge, one node, started in a folder of its own; on wish with accounts.

mod accounts;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::probe::slurm::{Answer, NodeProbe, SlurmConfig, SlurmNode};

use crate::deadline::Deadline;
use crate::process::{self, Process};
use crate::{port, wait};
use accounts::Accounts;

/// Longest wait for something that Slurm does.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Slurm's processes beside a job do not say whose controller they belong to: one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A controller, a node and munge; all end with it, and their jobs.
#[derive(Debug)]
pub struct Slurm {
    _one: MutexGuard<'static, ()>,
    dir: PathBuf,
    /// The node's name.
    pub node: String,
    /// In the order of their start: munged, slurmctld, slurmd.
    daemons: Vec<Process>,
    accounts: Option<Accounts>,
    // The last: letting the others go may hang too.
    _deadline: Deadline,
}

impl Slurm {
    /// Starts it in `dir`, which must be short: munge listens on a socket there.
    ///
    /// # Errors
    /// If it is not installed, or its node is not idle in time.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::prepare(dir)?.launch()
    }

    fn prepare(dir: &Path) -> Result<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let node = name.trim().split('.').next().unwrap_or_default().to_owned();
        for folder in ["munge", "state", "spool"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        fs::write(dir.join("munge/key"), [42u8; 128])?;
        for (private, mode) in [
            (dir.join("munge/key"), 0o400),
            (dir.join("munge"), 0o755),
            (dir.to_owned(), 0o755),
        ] {
            fs::set_permissions(private, fs::Permissions::from_mode(mode))?;
        }
        Ok(Self {
            _one: one,
            dir: dir.to_owned(),
            node,
            daemons: Vec::new(),
            accounts: None,
            // From when it is this test's turn.
            _deadline: Deadline::of_test(),
        })
    }

    fn launch(mut self) -> Result<Self> {
        // One that has ended and is still to be reaped has no words.
        let step = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline"));
            words.is_ok_and(|words| words.starts_with(b"slurmstepd"))
        };
        let others: Vec<u32> = pids().filter(step).collect();
        ensure!(
            others.is_empty(),
            "steps of another Slurm run on this machine, and an agent takes them for jobs of this one: kill {others:?}"
        );
        fs::write(self.conf(), self.configuration()?)?;
        let at = |name: &str| self.dir.join(name).display().to_string();
        let munged = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("munge/key")),
            format!("--socket={}", at("munge/socket")),
            format!("--pid-file={}", at("munge/pid")),
            format!("--log-file={}", at("munge/log")),
            format!("--seed-file={}", at("munge/seed")),
        ];
        let conf = at("slurm.conf");
        let slurmd = [
            "-D".to_owned(),
            "-f".to_owned(),
            conf.clone(),
            "-N".to_owned(),
            self.node.clone(),
        ];
        self.spawn("munged", &munged)?;
        let socket = self.dir.join("munge/socket");
        wait::until("munge's socket", PATIENCE, || Ok(socket.exists().then_some(())))?;
        self.keep_accounts()?;
        self.spawn("slurmctld", &["-D".to_owned(), "-f".to_owned(), conf])?;
        self.spawn("slurmd", &slurmd)?;
        self.wait_node("idle", |n| n.state_text == "IDLE")?;
        Ok(self)
    }

    fn configuration(&self) -> Result<String> {
        let (controller, daemon) = (port::free()?, port::free()?);
        let at = |name: &str| self.dir.join(name).display().to_string();
        let node = &self.node;
        let user = process::output(Command::new("id").arg("-un"))?;
        Ok(format!(
            "ClusterName=probe\nSlurmctldHost={node}(127.0.0.1)\nSlurmUser={user}\nSlurmdUser={user}\n\
             AuthType=auth/munge\nAuthInfo=socket={}\nSlurmctldPort={controller}\nSlurmdPort={daemon}\n\
             StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n\
             SlurmctldLogFile={}\nSlurmdLogFile={}\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nMpiDefault=none\nReturnToService=2\nMailProg=/bin/true\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nSchedulerParameters=sched_interval=2\n\
             NodeName={node} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN\n\
             PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE\n{}",
            at("munge/socket"),
            at("state"),
            at("spool"),
            at("ctld.pid"),
            at("d.pid"),
            at("ctld.log"),
            at("d.log"),
            self.accounting(),
            user = user.trim(),
        ))
    }

    fn spawn(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let mut command = self.inside(&program(name)?);
        command.args(arguments);
        let log = self.dir.join(format!("{name}.out"));
        self.daemons.push(Process::start(name, command, &log)?);
        Ok(())
    }

    /// Its configuration file.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.dir.join("slurm.conf")
    }

    /// What an agent is told of it.
    #[must_use]
    pub fn config(&self) -> SlurmConfig {
        SlurmConfig {
            conf: Some(self.conf()),
            ..SlurmConfig::default()
        }
    }

    /// A path in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The node, by a fresh probe each time: none may rest on what it saw before.
    ///
    /// # Errors
    /// If Slurm does not answer.
    pub fn look(&self) -> Result<SlurmNode> {
        match NodeProbe::new(self.config(), &Roots::default()).read(std::time::Instant::now()) {
            Answer::Said(node) => Ok(node),
            other => bail!("no node: {other:?}"),
        }
    }

    /// Waits until the node is so.
    ///
    /// # Errors
    /// If it does not get there; with the ends of Slurm's logs.
    pub fn wait_node(&self, what: &str, is: impl Fn(&SlurmNode) -> bool) -> Result<SlurmNode> {
        let found = wait::until(what, PATIENCE, || self.look().map(|n| is(&n).then_some(n)));
        found.with_context(|| {
            let log = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
            format!("{}\n{}", log("ctld.log"), log("d.log"))
        })
    }

    /// Runs one of Slurm's programs.
    ///
    /// # Errors
    /// If it fails.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program(name)?);
        command
            .args(arguments)
            .env("SLURM_CONF", self.conf())
            .current_dir(&self.dir);
        Ok(process::output(&mut command)?.trim().to_owned())
    }

    /// What the site's administrator does to the node: `state=drain`, `reason=…`.
    ///
    /// # Errors
    /// If Slurm does not take it.
    pub fn update(&self, what: &[&str]) -> Result<()> {
        let node = format!("nodename={}", self.node);
        let mut arguments = vec!["update", &node];
        arguments.extend(what);
        self.run("scontrol", &arguments).map(drop)
    }

    /// Submits a job of one core and gives its id.
    ///
    /// # Errors
    /// If Slurm does not take it.
    pub fn submit(&self, script: &str, more: &[&str]) -> Result<u64> {
        let mut arguments = vec!["--parsable", "-n1", "--mem=100", "-o", "/dev/null"];
        arguments.extend(more);
        arguments.extend(["--wrap", script]);
        Ok(self.run("sbatch", &arguments)?.parse()?)
    }

    /// Ends a job.
    ///
    /// # Errors
    /// If Slurm does not know it.
    pub fn cancel(&self, job: u64) -> Result<()> {
        self.run("scancel", &[&job.to_string()]).map(drop)
    }

    /// SIGKILL to the controller.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_controller(&mut self) -> Result<()> {
        ensure!(self.daemons.len() == 3, "it was killed before");
        self.daemons.remove(1).kill()
    }
}

fn program(name: &str) -> Result<PathBuf> {
    ["/usr/sbin", "/usr/bin"]
        .iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.exists())
        .with_context(|| format!("{name} is not installed (Debian: apt-get install slurm-wlm munge)"))
}

impl Drop for Slurm {
    fn drop(&mut self) {
        while let Some(mut daemon) = self.daemons.pop() {
            drop(daemon.kill());
        }
        // Jobs outlive slurmd by design: end those of this site. A step that begins just now starts its script yet.
        let ended = wait::until("the end of Slurm's processes", PATIENCE, || {
            let left = self.leftover();
            for pid in &left {
                let mut kill = Command::new("kill");
                kill.args(["-9", &pid.to_string()]).stderr(Stdio::null());
                drop(kill.status());
            }
            Ok(left.is_empty().then_some(()))
        });
        if let Err(e) = ended {
            eprintln!("{e:#}");
        }
    }
}

impl Slurm {
    /// Processes that work below its folder or hold a file there; a step tells nothing else of where it belongs.
    fn leftover(&self) -> Vec<u32> {
        let dir = self.dir.canonicalize().unwrap_or_else(|_| self.dir.clone());
        let below = |link: &Path| fs::read_link(link).is_ok_and(|at| at.starts_with(&dir));
        let ours = |pid: &u32| {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            below(&process.join("cwd")) || files.map(|f| f.path()).any(|f| below(&f))
        };
        pids()
            .filter(|pid| *pid != std::process::id())
            .filter(ours)
            .collect()
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}
