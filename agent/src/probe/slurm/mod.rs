//! The batch system: state and capacity of this node, jobs on it. Asked by its own programs, by absolute path, with
//! an argument vector, a bare environment, a deadline and a bound on what they may print.

mod by;
mod client;
mod control;
mod drained;
mod hostlist;
mod last_word;
mod ledger;
mod listed;
mod node;
mod privacy;
mod queue;
mod remembered;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use by::By;
pub use control::{Control, Turned, drained_by};
pub use drained::Drained;
pub use last_word::LastWord;
pub use ledger::{Ended, Ledger};
pub use listed::LastNode;
pub use node::SlurmNode;
pub use privacy::setting;
pub use queue::Queue;
pub use remembered::{ledger_path, remembered};

use super::Roots;
use super::kept::Kept;
use super::process::{Processes, command_line};
use super::tool::{Tool, find};
use client::{Client, LONGEST_FOR_LISTS, LONGEST_FOR_RECORDS};
use listed::Listed;
use privacy::Privacy;

/// What the administrator says of Slurm here.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SlurmConfig {
    /// Whether this node belongs to Slurm; none: if it is configured here, slurmd or a job's step runs, or an agent has
    /// seen it here.
    pub enabled: Option<bool>,
    /// Folder of `scontrol`, `squeue`, `slurmd`.
    pub bin_dir: Option<PathBuf>,
    /// `SLURM_CONF` of the programs.
    pub conf: Option<PathBuf>,
    /// The node's name in Slurm; none: slurmd's `-N`, else the short host name.
    pub node_name: Option<String>,
    /// File that is there once an agent has seen Slurm here: its ledger of jobs.
    pub seen: Option<PathBuf>,
}

impl SlurmConfig {
    /// Whether a file says that this node belongs to Slurm.
    #[must_use]
    pub fn is_configured(&self, etc: &Path) -> bool {
        self.enabled == Some(true)
            || self.conf.is_some()
            || etc.join("slurm/slurm.conf").exists()
            || etc.join("slurm-llnl/slurm.conf").exists()
    }

    /// One of Slurm's programs, as the administrator says; none where it is not installed.
    pub(crate) fn tool(&self, program: &str, deadline: Duration, limit: usize) -> Option<Tool> {
        let tool = find(program, self.bin_dir.as_deref()).map(|path| Tool::new(path, deadline, limit))?;
        Some(match &self.conf {
            Some(conf) => tool.with("SLURM_CONF", conf.as_os_str()),
            None => tool,
        })
    }
}

/// Jobs on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJobs {
    /// Ids of what holds resources here, without prefix.
    pub active: Vec<u64>,
    /// What waits for this very node; none while the controller does not answer, or shows other users' jobs to nobody.
    pub pending: Option<u32>,
    /// What ended within 24 hours; none while the controller shows other users' jobs to nobody, or is silent and has never
    /// shown any.
    pub ended: Option<Ended>,
    /// UNIX seconds since which jobs are followed.
    pub since: u64,
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

/// State and capacity of this node.
#[derive(Debug)]
pub struct NodeProbe(Client, LastNode);

impl NodeProbe {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(config: SlurmConfig, roots: &Roots) -> Self {
        let client = Client::new(config, roots, "scontrol", LONGEST_FOR_RECORDS);
        Self(client, LastNode::default())
    }

    /// Puts down for others what the controller said last.
    #[must_use]
    pub fn telling(self, last: LastNode) -> Self {
        Self(self.0, last)
    }

    /// Asks the controller.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Answer<SlurmNode> {
        let answer = self.0.ask(now, |tool, name| {
            let text = tool.run(&["--oneliner", "--details", "show", "node", name])?;
            Ok(node::parse(&String::from_utf8_lossy(&text), name))
        });
        let said = match &answer {
            Answer::Said(node) => Some(node.clone()),
            Answer::NotHere | Answer::Silent => None,
        };
        self.1.set(now, said);
        answer
    }
}

/// Jobs of this node.
#[derive(Debug)]
pub struct JobsProbe {
    client: Client,
    kept: Kept,
    ledger: Option<Ledger>,
    steps: Processes,
    /// Jobs ran here that the controller did not show (`PrivateData=jobs`).
    hidden: bool,
    privacy: Privacy,
    /// What is known of the node meanwhile.
    node: LastNode,
    listed: Option<Listed>,
}

impl JobsProbe {
    /// `kept`: where transitions are kept.
    #[must_use]
    pub fn new(config: SlurmConfig, roots: &Roots, kept: impl Into<Kept>) -> Self {
        Self {
            privacy: Privacy::new(&config),
            client: Client::new(config, roots, "squeue", LONGEST_FOR_LISTS),
            kept: kept.into(),
            ledger: None,
            steps: Processes::named("slurmstepd"),
            hidden: false,
            node: LastNode::default(),
            listed: None,
        }
    }

    /// Beside who asks for the node's record ([`NodeProbe::telling`]): while this stays the same, the jobs of a large cluster
    /// are listed less often.
    #[must_use]
    pub fn beside(self, node: LastNode) -> Self {
        Self { node, ..self }
    }

    /// Asks the controller; `unix` is the wall clock. While it does not answer, or shows other users' jobs to nobody,
    /// what runs is known from the processes that Slurm keeps beside each job here.
    #[must_use]
    pub fn read(&mut self, now: Instant, unix: u64) -> Answer<SlurmJobs> {
        let last = self.node.get();
        self.client.is_back(self.node.back());
        let served = self.listed.as_ref().and_then(|l| l.serves(last.as_ref(), now));
        if let Some(jobs) = served {
            let ended = self.ledger(unix).ended(unix);
            return Answer::Said(SlurmJobs {
                ended: jobs.ended.map(|_| ended),
                ..jobs
            });
        }
        if last.is_none() && self.listed.as_ref().is_some_and(|l| l.suffices(now)) {
            return self.without_the_controller(unix);
        }
        let answer = self.client.ask(now, |tool, name| {
            let mut queue = Queue::default();
            tool.run_lines(&["--noheader", "--all", "--states=all", queue::FORMAT], |line| {
                queue.add(line, name);
            })?;
            Ok(Some(queue))
        });
        match answer {
            Answer::NotHere => Answer::NotHere,
            Answer::Silent => self.without_the_controller(unix),
            Answer::Said(mut queue) => {
                let (all, middle) = (queue.all, queue.middle_end());
                let node = last.as_ref().map(|(_, node)| node);
                let jobs = self.follow(queue, unix);
                let age = middle.map(|at| unix.saturating_sub(at));
                self.listed = (all >= listed::MANY).then(|| Listed::new(now, node, &jobs, age));
                Answer::Said(jobs)
            }
        }
    }

    fn follow(&mut self, queue: Queue, unix: u64) -> SlurmJobs {
        let shows = !queue.active.is_empty() || !queue.ended.is_empty() || queue.pending > 0;
        let unlisted = if queue.active.is_empty() {
            running_here(&mut self.steps, &self.client.roots)
        } else {
            Vec::new()
        };
        self.hidden = !shows && (self.hidden || !unlisted.is_empty());
        let (hides, lists) = (self.hidden, queue.all > 0);
        let ledger = self.ledger(unix);
        let showed = ledger.show(lists, hides);
        // Who has never been shown a job takes no empty list for an empty cluster.
        let unproven = !ledger.shown();
        let hidden = hides || (unproven && self.privacy.hides_jobs() != Some(false));
        let told = !hidden && unlisted.is_empty();
        let ledger = self.ledger(unix);
        let updated = ledger.update(&queue, unix);
        let changed = [showed, updated, ledger.tell(told)].contains(&true);
        let (ended, since) = (ledger.ended(unix), ledger.since);
        if changed {
            self.keep();
        }
        SlurmJobs {
            ended: (!hidden).then_some(ended),
            since,
            active: if unlisted.is_empty() {
                queue.active
            } else {
                unlisted
            },
            pending: (!hidden).then_some(queue.pending),
        }
    }

    /// What jobs ran is not known, and that Slurm is here must outlive slurmd and this process.
    fn without_the_controller(&mut self, unix: u64) -> Answer<SlurmJobs> {
        self.processes(unix).map_or(Answer::Silent, Answer::Said)
    }

    /// Without the controller; none if nothing runs here either: then nothing is known.
    fn processes(&mut self, unix: u64) -> Option<SlurmJobs> {
        let active = running_here(&mut self.steps, &self.client.roots);
        let ledger = self.ledger(unix);
        if active.is_empty() {
            return None;
        }
        // What the controller has shown before holds no more.
        let changed = ledger.tell(false);
        // Of whoever was never shown a job, zeros are no knowledge.
        let ended = ledger.shown().then(|| ledger.ended(unix));
        let since = ledger.since;
        if changed {
            self.keep();
        }
        Some(SlurmJobs {
            active,
            pending: None,
            ended,
            since,
        })
    }

    fn keep(&self) {
        if let Some(Err(e)) = self.ledger.as_ref().map(|l| self.kept.save(l)) {
            tracing::warn!("transitions of jobs are not kept over a restart: {e}");
        }
    }

    fn ledger(&mut self, unix: u64) -> &mut Ledger {
        let kept = &self.kept;
        self.ledger.get_or_insert_with(|| {
            kept.load().unwrap_or_else(|| {
                let new = Ledger::new(unix);
                // Without a job too it says that Slurm was here.
                if let Err(e) = kept.save(&new) {
                    tracing::warn!("transitions of jobs are not kept over a restart: {e}");
                }
                new
            })
        })
    }
}

/// Jobs with a step on this node, rising: Slurm names the process beside each `slurmstepd: [4711.batch]`.
fn running_here(steps: &mut Processes, roots: &Roots) -> Vec<u64> {
    let mut jobs: Vec<u64> = steps
        .find(roots)
        .into_iter()
        .filter_map(|pid| {
            let text = command_line(&roots.proc, pid)?;
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
mod tests;
