//! Asking one of Slurm's programs about this node.

use std::time::{Duration, Instant};

use super::{Answer, SlurmConfig};
use crate::probe::process::{Daemon, Processes, option};
use crate::probe::tool::{Tool, ToolError};
use crate::probe::{Roots, host};

/// Slurm's own clients give up on a dead controller after 10 s by default.
const DEADLINE: Duration = Duration::from_secs(8);
/// After failures the controller is asked less often, up to this for one node's record, which costs it next to nothing and
/// without which nothing is offered here: with rounds of 30 s once a minute.
pub(super) const LONGEST_FOR_RECORDS: Duration = Duration::from_secs(45);
/// The same for lists.
pub(super) const LONGEST_FOR_LISTS: Duration = Duration::from_secs(300);
/// Between two looks for a slurmd that was not there.
const RARELY: Duration = Duration::from_secs(55);
const LINE: usize = 64 << 10;

/// Asks one of Slurm's programs about this node, less often while it fails.
#[derive(Debug)]
pub(super) struct Client {
    config: SlurmConfig,
    pub(super) roots: Roots,
    program: &'static str,
    tool: Option<Tool>,
    slurmd: Daemon,
    steps: Processes,
    /// Slurm was here: that its daemon is down takes the node away from nobody.
    seen: bool,
    /// What slurmd was started as.
    name: Option<String>,
    /// When it was looked for in vain.
    missing: Option<Instant>,
    pause: Duration,
    longest_pause: Duration,
    not_before: Option<Instant>,
    /// When it was asked last, in vain.
    failed: Option<Instant>,
    said: bool,
    /// The last failure.
    last: String,
}

impl Client {
    pub(super) fn new(
        config: SlurmConfig,
        roots: &Roots,
        program: &'static str,
        longest_pause: Duration,
    ) -> Self {
        Self {
            config,
            roots: roots.clone(),
            program,
            tool: None,
            slurmd: Daemon::new("slurmd"),
            steps: Processes::named("slurmstepd"),
            seen: false,
            name: None,
            missing: None,
            pause: Duration::ZERO,
            longest_pause,
            not_before: None,
            failed: None,
            said: false,
            last: String::new(),
        }
    }

    /// Why it does not answer.
    pub(super) fn trouble(&self) -> String {
        if self.last.is_empty() {
            format!("{} does not answer", self.program)
        } else {
            self.last.clone()
        }
    }

    /// The node's name and whether Slurm is here.
    pub(super) fn node(&mut self) -> Option<String> {
        if self.config.enabled == Some(false) {
            return None;
        }
        let here = self.seen || self.config.is_configured(&self.roots.etc);
        // Where there is neither a configuration nor the daemon, it is looked for once a minute.
        let now = Instant::now();
        if !here
            && self
                .missing
                .is_some_and(|at| now.saturating_duration_since(at) < RARELY)
        {
            return None;
        }
        let process = self.slurmd.find(&self.roots);
        self.missing = process.is_none().then_some(now);
        // A node without any configuration of its own has it from the controller, and loses it with slurmd's end.
        self.seen |= process.is_some() || (!here && self.was_here());
        if !here && !self.seen {
            return None;
        }
        let started = process.filter(|_| self.slurmd.is_new());
        if let Some(name) = started.and_then(|pid| option(&self.roots.proc, pid, "-N")) {
            self.name = Some(name);
        }
        self.config
            .node_name
            .clone()
            .or_else(|| self.name.clone())
            .or_else(|| host::hostname(&self.roots)?.split('.').next().map(str::to_owned))
    }

    /// Whether an agent has seen Slurm here, or a job of it still runs.
    fn was_here(&mut self) -> bool {
        // Once: what is written later, this process has seen itself, and the state directory may hang.
        self.config.seen.take().is_some_and(|path| path.exists()) || !self.steps.find(&self.roots).is_empty()
    }

    /// The controller has ended a long silence for somebody else, then: who failed before that need not wait longer.
    pub(super) fn is_back(&mut self, at: Option<Instant>) {
        if self.failed.zip(at).is_some_and(|(failed, at)| at > failed) {
            self.pause = Duration::ZERO;
            self.not_before = None;
        }
    }

    pub(super) fn ask<T>(
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
            let tool = self.config.tool(self.program, DEADLINE, LINE);
            self.tool = tool.map(|tool| tool.with("SLURM_TIME_FORMAT", "%s"));
        }
        let asked = Instant::now();
        let outcome = match &mut self.tool {
            None => Err(format!(
                "{} is not installed; set slurm.bin_dir, or slurm.enabled: false if this node has left Slurm",
                self.program
            )),
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
                self.failed = None;
                Answer::Said(answer)
            }
            Err(message) => {
                if !std::mem::replace(&mut self.said, true) {
                    tracing::warn!("slurm: {message}");
                }
                self.last = message;
                self.failed = Some(now);
                self.pause = self
                    .pause
                    .saturating_mul(2)
                    .clamp(Duration::from_secs(15), self.longest_pause);
                // From the end of a long wait, not from its beginning.
                self.not_before = now.checked_add(asked.elapsed().saturating_add(self.pause));
                Answer::Silent
            }
        }
    }
}
