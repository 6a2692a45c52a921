//! Batches of reports.

use std::time::Duration;

use anyhow::{Context, Result};
use hpc_chain::gas::Coin;
use hpc_schema::registry::{ExecuteMsg, ReportGroup};

use super::Bench;
use crate::bench::chain::PINNED;
use crate::bench::figures::{Row, Variant};
use crate::bench::fleet::Fleet;
use crate::bench::reports::{Sections, batch};
use crate::raw::now;

/// Reports before the first measured one: the first carries every section, the second settles.
pub(super) const WARM_UP_ROUNDS: usize = 2;
/// Measured rounds; the dearest counts.
pub(super) const ROUNDS: usize = 2;
/// Sizes that are measured with the code pinned as well.
const PINNED_SIZES: [usize; 3] = [1, 50, 256];

/// Every round is of another second, so that every report's time is new as well.
pub(super) async fn next_second() -> Result<u64> {
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    now()
}

impl Bench {
    /// One report message over `clusters` clusters of exactly n nodes in all.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn batch(&mut self, name: &str, n: usize, clusters: usize) -> Result<Row> {
        let mut fleets = Vec::new();
        for number in 0..clusters {
            fleets.push(self.fleet(&format!("{name}-{number}"), n / clusters).await?);
        }
        self.rounds(&mut fleets, Sections::None, |_| true, &[]).await
    }

    /// Other shapes of batches, among them a cluster of 64 nodes, which is a full page.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn variants(&mut self) -> Result<Vec<Variant>> {
        let mut variants = Vec::new();
        let mut add = |name: &str, row: Row| {
            let name = name.to_owned();
            variants.push(Variant { name, row });
        };
        let row = self.batch("spread", 50, 10).await?;
        add("50 reports spread over 10 clusters of 5", row);

        let mut fleets = [self.fleet("page", 64).await?];
        let row = self
            .rounds(&mut fleets, Sections::None, |number| number < 50, &[])
            .await?;
        add("50 reports of a full page of 64", row);

        let mut fleets = [self.fleet("details", 256).await?];
        let row = self
            .rounds(&mut fleets, Sections::PerCent(5), |_| true, &[])
            .await?;
        add("256 reports, 5 % with changed details", row);

        let mut fleets = [self.fleet("jobs", 50).await?];
        let row = self
            .rounds(&mut fleets, Sections::PerCent(100), |_| true, &[])
            .await?;
        add("50 reports, every one with new job ids", row);

        let mut fleets = [self.fleet("paid", 50).await?];
        let fee: Coin = "5000stake".parse()?;
        let row = self.rounds(&mut fleets, Sections::None, |_| true, &[fee]).await?;
        add("50 reports, a fee paid", row);
        Ok(variants)
    }

    /// Batches on a registry of pinned code.
    ///
    /// # Errors
    /// If a transaction fails.
    pub async fn pinned(&mut self) -> Result<Vec<Row>> {
        self.instantiate(PINNED).await?;
        let mut rows = Vec::new();
        for n in PINNED_SIZES {
            rows.push(self.batch(&format!("pinned{n}"), n, 1).await?);
        }
        Ok(rows)
    }

    /// Warms up, then measures: the dearest of the measured rounds.
    async fn rounds(
        &mut self,
        fleets: &mut [Fleet],
        sections: Sections,
        pick: impl Fn(usize) -> bool + Copy,
        fee: &[Coin],
    ) -> Result<Row> {
        let mut dearest: Option<Row> = None;
        for round in 0..WARM_UP_ROUNDS + ROUNDS {
            let time = next_second().await?;
            let (mut groups, mut n) = (Vec::new(), 0);
            for fleet in &mut *fleets {
                // The first round is of all nodes, so that none stays PENDING beside those that are measured.
                let reports = match round {
                    0 => fleet.reports(time, Sections::All, |_| true)?,
                    _ => fleet.reports(time, sections, pick)?,
                };
                n += u64::try_from(reports.len())?;
                groups.push(ReportGroup {
                    cluster_id: fleet.cluster.clone(),
                    reports: batch(&reports)?,
                });
            }
            let message = ExecuteMsg::SubmitReports { groups };
            let spent = self.send_with(&[message], &[], fee.to_vec()).await?.spent;
            if round >= WARM_UP_ROUNDS && dearest.as_ref().is_none_or(|d| d.gas_used < spent.gas) {
                dearest = Some(Row {
                    n,
                    clusters: u64::try_from(fleets.len())?,
                    gas_used: spent.gas,
                    gas_per_report: spent.gas.div_ceil(n),
                    tx_bytes: spent.bytes,
                });
            }
        }
        for fleet in &*fleets {
            self.check(fleet).await?;
        }
        dearest.context("nothing was measured")
    }
}
