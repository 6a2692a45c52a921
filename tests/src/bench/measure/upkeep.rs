//! Registrations while a page fills, sweeps over silent nodes, prunes.

use anyhow::{Result, ensure};
use hpc_schema::registry::{ExecuteMsg, PruneAnswer, ReportGroup, SweepAnswer};

use super::{Bench, answer};
use crate::bench::figures::{Figure, Spent};
use crate::bench::fleet::Fleet;
use crate::bench::reports::{Sections, batch};
use crate::bench::silent::{Silent, create};
use crate::raw::now;

/// Mean over all registrations of a page.
pub const FILL_MEAN: &str = "register_node, mean while a page of 64 fills";
/// The dearest of them.
pub const FILL_WORST: &str = "register_node, dearest while a page of 64 fills";
/// A sweep that finds nothing to change.
pub const SWEEP_IDLE: &str = "sweep of 1,024 silent nodes, nothing changes";
/// A sweep in which all nodes change once.
pub const SWEEP_STALE: &str = "sweep of 1,024 nodes, all become STALE";

/// Nodes of a page.
const PAGE: u64 = 64;
/// Registrations between two rounds of reports: pages of sections and sums are then there, as they are in life.
const BETWEEN_REPORTS: usize = 16;

impl Bench {
    /// One registration a transaction, until a page is full.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn registrations(&mut self) -> Result<Vec<Figure>> {
        let mut whole = Fleet::new("filling", usize::try_from(PAGE)?)?;
        self.send(&create(&whole)).await?;
        let registrations = whole.registrations(self.domain(), &self.sender.key, now()?)?;
        let mut spent = Vec::new();
        for (done, chunk) in registrations.chunks(BETWEEN_REPORTS).enumerate() {
            let transactions = chunk
                .iter()
                .map(|m| self.encode(std::slice::from_ref(m)))
                .collect::<Result<_>>()?;
            let answers = self.sender.send_all(transactions, &[]).await?;
            spent.extend(answers.into_iter().map(|done| done.spent));
            let registered = (done + 1) * BETWEEN_REPORTS;
            let mut fleet = Fleet::new("filling", registered)?;
            self.place(&mut fleet).await?;
            let reports = fleet.reports(now()?, Sections::All, |_| true)?;
            let group = ReportGroup {
                cluster_id: fleet.cluster.clone(),
                reports: batch(&reports)?,
            };
            self.send(&[ExecuteMsg::SubmitReports { groups: vec![group] }])
                .await?;
            whole = fleet;
        }
        self.check(&whole).await?;
        let sum = |of: fn(&Spent) -> u64| spent.iter().map(of).sum::<u64>().div_ceil(PAGE);
        let mean = Spent {
            gas: sum(|s| s.gas),
            bytes: sum(|s| s.bytes),
        };
        let worst = spent.iter().copied().max_by_key(|s| s.gas).unwrap_or(mean);
        Ok(vec![
            Figure::new(FILL_MEAN, 1, mean),
            Figure::new(FILL_WORST, 1, worst),
        ])
    }

    /// Sweeps and prunes of a registry whose nodes are silent; leaves the nodes of `silent.offline` OFFLINE.
    ///
    /// # Errors
    /// If a transaction fails or does not change what it should.
    pub async fn silence(&mut self, silent: &Silent) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (name, fleet, arrows) in [
            (SWEEP_STALE, &silent.stale, 1),
            (SWEEP_IDLE, &silent.stale, 0),
            (
                "sweep of 1,024 nodes, all become STALE and OFFLINE, jobs at risk",
                &silent.offline,
                2,
            ),
            (
                "sweep of 1,024 OFFLINE nodes, all become DEREGISTERED, jobs failed",
                &silent.gone,
                1,
            ),
        ] {
            let nodes = u64::try_from(fleet.ids().len())?;
            let sweep = ExecuteMsg::Sweep {
                cluster_id: Some(fleet.cluster.clone()),
                limit: None,
            };
            let done = self.send_with(&[sweep], &[], Vec::new()).await?;
            let told: SweepAnswer = answer(&done)?;
            ensure!(
                told.done && u64::from(told.transitions) == arrows * nodes,
                "{name}: {told:?}"
            );
            figures.push(Figure::new(name, nodes, done.spent));
        }
        for limit in [1, 32, 256] {
            let prune = ExecuteMsg::Prune { limit: Some(limit) };
            let done = self.send_with(&[prune], &[], Vec::new()).await?;
            let told: PruneAnswer = answer(&done)?;
            ensure!(told.removed == limit, "prune of {limit}: {told:?}");
            let nodes = if limit == 1 { "node" } else { "nodes" };
            let name = format!("prune of {limit} {nodes}");
            figures.push(Figure::new(name, u64::from(limit), done.spent));
        }
        Ok(figures)
    }
}
