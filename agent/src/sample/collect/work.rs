use std::time::{Duration, Instant};

use super::{Collector, Reading};
use crate::clock::unix_seconds;
use crate::probe::Roots;
use crate::probe::checks::{ChecksConfig, ChecksProbe};
use crate::probe::kept::Kept;
use crate::probe::services::ServicesProbe;
use crate::probe::slurm::{JobsProbe, LastNode, NodeProbe, SlurmConfig};
use crate::sample::Category;

/// Slurm's programs give up by themselves after eight seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Daemons and container runtime.
pub(super) struct Programs(ServicesProbe);

impl Programs {
    pub(super) fn new(roots: &Roots, slurm: &SlurmConfig) -> Self {
        Self(ServicesProbe::new(roots, slurm))
    }
}

impl Collector for Programs {
    fn name(&self) -> &'static str {
        "services"
    }
    fn category(&self) -> Category {
        Category::JobCounts
    }
    fn deadline(&self) -> Duration {
        PATIENCE
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Services(self.0.read(now))]
    }
}

/// The node as Slurm sees it.
pub(super) struct Node(NodeProbe);

impl Node {
    pub(super) fn new(roots: &Roots, slurm: &SlurmConfig, last: LastNode) -> Self {
        Self(NodeProbe::new(slurm.clone(), roots).telling(last))
    }
}

impl Collector for Node {
    fn name(&self) -> &'static str {
        "slurm"
    }
    fn category(&self) -> Category {
        Category::Capacity
    }
    fn deadline(&self) -> Duration {
        PATIENCE
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Slurm(self.0.read(now))]
    }
}

/// Jobs on this node.
pub(super) struct Jobs(JobsProbe);

impl Jobs {
    pub(super) fn new(roots: &Roots, slurm: &SlurmConfig, kept: Kept, node: LastNode) -> Self {
        Self(JobsProbe::new(slurm.clone(), roots, kept).beside(node))
    }
}

impl Collector for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }
    fn category(&self) -> Category {
        Category::JobCounts
    }
    fn deadline(&self) -> Duration {
        PATIENCE
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Jobs(self.0.read(now, unix_seconds()))]
    }
}

/// The site's own checks.
pub(super) struct SiteChecks(ChecksProbe);

impl SiteChecks {
    pub(super) fn new(config: &ChecksConfig) -> Self {
        Self(ChecksProbe::new(config.clone()))
    }
}

impl Collector for SiteChecks {
    fn name(&self) -> &'static str {
        "site checks"
    }
    fn category(&self) -> Category {
        Category::HealthStatus
    }
    fn deadline(&self) -> Duration {
        // Each has its own.
        Duration::from_secs(600)
    }
    fn collect(&mut self, now: Instant) -> Vec<Reading> {
        vec![Reading::Checks(self.0.read(now))]
    }
}
