//! The batch system: state and capacity of this node, jobs on it. Asked by its own programs, by absolute path, with
//! an argument vector, a bare environment, a deadline and a bound on what they may print.

mod by;
mod control;
mod hostlist;
mod ledger;
mod node;
mod queue;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use by::By;
pub use control::{Control, Turned, drained_by};
pub use ledger::{Ended, Ledger};
pub use node::SlurmNode;
pub use queue::Queue;

use super::kept::Kept;
use super::process::{Daemon, Processes, command_line};
use super::tool::{Tool, ToolError, find};
use super::{Roots, host};

/// Slurm's own clients give up on a dead controller after 10 s by default.
const DEADLINE: Duration = Duration::from_secs(8);
/// After failures the controller is asked less often, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Between two looks for a slurmd that was not there.
const RARELY: Duration = Duration::from_secs(55);
const LINE: usize = 64 << 10;

/// What the administrator says of Slurm here.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SlurmConfig {
    /// Whether this node belongs to Slurm; none: if it is configured here or slurmd runs.
    pub enabled: Option<bool>,
    /// Folder of `scontrol`, `squeue`, `slurmd`.
    pub bin_dir: Option<PathBuf>,
    /// `SLURM_CONF` of the programs.
    pub conf: Option<PathBuf>,
    /// The node's name in Slurm; none: slurmd's `-N`, else the short host name.
    pub node_name: Option<String>,
}

/// Jobs on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJobs {
    /// Ids of what holds resources here, without prefix.
    pub active: Vec<u64>,
    /// What waits for this very node; none while the controller does not answer.
    pub pending: Option<u32>,
    /// What ended within 24 hours.
    pub ended: Ended,
    /// UNIX seconds since which jobs are followed.
    pub since: u64,
}

/// Asks one of Slurm's programs about this node, less often while it fails.
#[derive(Debug)]
struct Client {
    config: SlurmConfig,
    roots: Roots,
    program: &'static str,
    tool: Option<Tool>,
    slurmd: Daemon,
    /// When it was looked for in vain.
    missing: Option<Instant>,
    pause: Duration,
    not_before: Option<Instant>,
    said: bool,
    /// The last failure.
    last: String,
}

/// Whether Slurm rules this node, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    /// No Slurm on this node.
    NotHere,
    /// Slurm, but it does not answer.
    Silent,
    /// This.
    Said(T),
}

impl Client {
    fn new(config: SlurmConfig, roots: &Roots, program: &'static str) -> Self {
        Self {
            config,
            roots: roots.clone(),
            program,
            tool: None,
            slurmd: Daemon::new("slurmd"),
            missing: None,
            pause: Duration::ZERO,
            not_before: None,
            said: false,
            last: String::new(),
        }
    }

    /// Why it does not answer.
    fn trouble(&self) -> String {
        if self.last.is_empty() {
            format!("{} does not answer", self.program)
        } else {
            self.last.clone()
        }
    }

    /// The node's name and whether Slurm is here.
    fn node(&mut self) -> Option<String> {
        if self.config.enabled == Some(false) {
            return None;
        }
        let configured = self.config.enabled == Some(true)
            || self.config.conf.is_some()
            || self.roots.etc.join("slurm/slurm.conf").exists()
            || self.roots.etc.join("slurm-llnl/slurm.conf").exists();
        // Where there is neither a configuration nor the daemon, it is looked for once a minute.
        let now = Instant::now();
        if !configured
            && self
                .missing
                .is_some_and(|at| now.saturating_duration_since(at) < RARELY)
        {
            return None;
        }
        let process = self.slurmd.find(&self.roots.proc);
        self.missing = process.is_none().then_some(now);
        if !configured && process.is_none() {
            return None;
        }
        self.config
            .node_name
            .clone()
            .or_else(|| super::process::option(&self.roots.proc, process?, "-N"))
            .or_else(|| host::hostname(&self.roots)?.split('.').next().map(str::to_owned))
    }

    fn ask<T>(
        &mut self,
        now: Instant,
        read: impl FnOnce(&mut Tool, &str) -> Result<Option<T>, ToolError>,
    ) -> Answer<T> {
        let Some(node) = self.node() else {
            return Answer::NotHere;
        };
        if self.not_before.is_some_and(|at| now < at) {
            return Answer::Silent;
        }
        if self.tool.is_none() {
            self.tool = find(self.program, self.config.bin_dir.as_deref()).map(|path| {
                let tool = Tool::new(path, DEADLINE, LINE).with("SLURM_TIME_FORMAT", "%s");
                match &self.config.conf {
                    Some(conf) => tool.with("SLURM_CONF", conf.as_os_str()),
                    None => tool,
                }
            });
        }
        let asked = Instant::now();
        let outcome = match &mut self.tool {
            None => Err(format!("{} is not installed; set slurm.bin_dir", self.program)),
            Some(tool) => match read(tool, &node) {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(format!(
                    "{} does not know node {node}; set slurm.node_name",
                    self.program
                )),
                Err(e) => Err(e.to_string()),
            },
        };
        match outcome {
            Ok(answer) => {
                if std::mem::take(&mut self.said) {
                    tracing::info!("slurm answers {} again", self.program);
                }
                self.pause = Duration::ZERO;
                self.not_before = None;
                Answer::Said(answer)
            }
            Err(message) => {
                if !std::mem::replace(&mut self.said, true) {
                    tracing::warn!("slurm: {message}");
                }
                self.last = message;
                self.pause = self
                    .pause
                    .saturating_mul(2)
                    .clamp(Duration::from_secs(15), LONGEST_PAUSE);
                // From the end of a long wait, not from its beginning.
                self.not_before = now.checked_add(asked.elapsed().saturating_add(self.pause));
                Answer::Silent
            }
        }
    }
}

/// State and capacity of this node.
#[derive(Debug)]
pub struct NodeProbe(Client);

impl NodeProbe {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(config: SlurmConfig, roots: &Roots) -> Self {
        Self(Client::new(config, roots, "scontrol"))
    }

    /// Asks the controller.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Answer<SlurmNode> {
        self.0.ask(now, |tool, name| {
            let text = tool.run(&["--oneliner", "--details", "show", "node", name])?;
            Ok(node::parse(&String::from_utf8_lossy(&text), name))
        })
    }
}

/// Jobs of this node.
#[derive(Debug)]
pub struct JobsProbe {
    client: Client,
    kept: Kept,
    ledger: Option<Ledger>,
    steps: Processes,
}

impl JobsProbe {
    /// `kept`: where transitions are kept.
    #[must_use]
    pub fn new(config: SlurmConfig, roots: &Roots, kept: impl Into<Kept>) -> Self {
        Self {
            client: Client::new(config, roots, "squeue"),
            kept: kept.into(),
            ledger: None,
            steps: Processes::named("slurmstepd"),
        }
    }

    /// Asks the controller; `unix` is the wall clock. While it does not answer, or shows other users' jobs to nobody,
    /// what runs is known from the processes that Slurm keeps beside each job here.
    #[must_use]
    pub fn read(&mut self, now: Instant, unix: u64) -> Answer<SlurmJobs> {
        let answer = self.client.ask(now, |tool, name| {
            let mut queue = Queue::default();
            tool.run_lines(&["--noheader", "--all", "--states=all", queue::FORMAT], |line| {
                queue.add(line, name);
            })?;
            Ok(Some(queue))
        });
        match answer {
            Answer::NotHere => Answer::NotHere,
            Answer::Silent => self.processes(unix).map_or(Answer::Silent, Answer::Said),
            Answer::Said(queue) => Answer::Said(self.follow(queue, unix)),
        }
    }

    fn follow(&mut self, queue: Queue, unix: u64) -> SlurmJobs {
        let ledger = self.ledger(unix);
        let changed = ledger.update(&queue, unix);
        let (ended, since) = (ledger.ended(unix), ledger.since);
        if changed && let Some(Err(e)) = self.ledger.as_ref().map(|l| self.kept.save(l)) {
            tracing::warn!("transitions of jobs are not kept over a restart: {e}");
        }
        let active = if queue.active.is_empty() {
            running_here(&mut self.steps, &self.client.roots.proc)
        } else {
            queue.active
        };
        SlurmJobs {
            ended,
            since,
            active,
            pending: Some(queue.pending),
        }
    }

    /// Without the controller; none if nothing runs here either: then nothing is known.
    fn processes(&mut self, unix: u64) -> Option<SlurmJobs> {
        let active = running_here(&mut self.steps, &self.client.roots.proc);
        if active.is_empty() {
            return None;
        }
        let ledger = self.ledger(unix);
        Some(SlurmJobs {
            active,
            pending: None,
            ended: ledger.ended(unix),
            since: ledger.since,
        })
    }

    fn ledger(&mut self, unix: u64) -> &mut Ledger {
        let kept = &self.kept;
        self.ledger
            .get_or_insert_with(|| kept.load().unwrap_or_else(|| Ledger::new(unix)))
    }
}

/// File of the job ledger in the state directory.
const LEDGER: &str = "jobs.json";

/// Where the job ledger is kept.
#[must_use]
pub fn ledger_path(state_dir: &Path) -> PathBuf {
    state_dir.join(LEDGER)
}

/// What ran here when an agent last looked; none if nothing did.
#[must_use]
pub fn remembered(state_dir: &Path, unix: u64) -> Option<SlurmJobs> {
    let ledger: Ledger = Kept::read_only(ledger_path(state_dir)).load()?;
    let active = ledger.active().to_vec();
    (!active.is_empty()).then(|| SlurmJobs {
        active,
        pending: None,
        ended: ledger.ended(unix),
        since: ledger.since,
    })
}

/// Jobs with a step on this node, rising: Slurm names the process beside each `slurmstepd: [4711.batch]`.
fn running_here(steps: &mut Processes, proc: &Path) -> Vec<u64> {
    let mut jobs: Vec<u64> = steps
        .find(proc)
        .into_iter()
        .filter_map(|pid| {
            let text = command_line(proc, pid)?;
            let (_, rest) = text.split_once('[')?;
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            rest.get(..end)?.parse().ok()
        })
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
