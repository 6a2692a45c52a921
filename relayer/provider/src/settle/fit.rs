//! What a transaction takes of gas, from what is in it: measured figures times what was learnt since the start. Pure.
//!
//! Where a node simulates, the simulation has the last word, and the fit learns from it. Where none does, the fit is what is
//! signed by, and learns from blocks.

use hpc_chain::gas::Adjustment;
use hpc_schema::registry::ExecuteMsg;

/// A fee that is paid. All figures are those of `docs/gas.md` (`tests/gas-budget.json`), measured on wasmd with code that is
/// not pinned; a test holds them to it.
const FEE: u64 = 18_000;
/// A transaction that pays a fee, and its first message.
const TX: u64 = 98_300 + FEE;
/// A page and its cluster.
const PAGE: u64 = 10_300;
const REPORT: u64 = 2_700;
const SECTION: u64 = 5_500;
const SECTION_BYTE: u64 = 42;
/// A node's state that changes.
pub const STEP: u64 = 1_300;
/// A report whose signature is verified alone, once one of its batch is bad.
pub const CHECK_AGAIN: u64 = 250;
/// The mean while a page fills.
const REGISTRATION: u64 = 135_000;
const SWEPT_PAGE: u64 = 5_700;
/// A node that a sweep steps, by the dearest step.
const SWEPT: u64 = 4_700;
/// What a prune costs beside the nodes.
const PRUNE: u64 = 205_700;
const PRUNED: u64 = 20_600;
/// The dearest act of the operator key.
const ACT: u64 = 96_000;
const ANCHOR: u64 = 30_000;

/// What a transaction has in it, as far as its gas depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Reports.
    Reports {
        /// Pages that are written.
        pages: u64,
        /// How many.
        reports: u64,
        /// Sections that travel with them.
        sections: u64,
        /// Their bytes.
        section_bytes: u64,
        /// Nodes whose state changes with their report.
        steps: u64,
    },
    /// Registrations.
    Register {
        /// How many.
        nodes: u64,
    },
    /// A sweep.
    Sweep {
        /// Pages that it visits.
        pages: u64,
        /// Nodes that it steps.
        steps: u64,
    },
    /// A prune.
    Prune {
        /// Nodes that it removes.
        nodes: u64,
    },
}

impl Load {
    /// By the measured figures.
    fn figures(self) -> u64 {
        match self {
            Self::Reports {
                pages,
                reports,
                sections,
                section_bytes,
                steps,
            } => sum(&[
                (pages, PAGE),
                (reports, REPORT),
                (sections, SECTION),
                (section_bytes, SECTION_BYTE),
                (steps, STEP),
            ]),
            Self::Register { nodes } => sum(&[(nodes, REGISTRATION)]),
            Self::Sweep { pages, steps } => sum(&[(pages, SWEPT_PAGE), (steps, SWEPT)]),
            Self::Prune { nodes } => sum(&[(1, PRUNE), (nodes, PRUNED)]),
        }
    }
}

/// A transaction of so many parts of so much each.
fn sum(parts: &[(u64, u64)]) -> u64 {
    parts.iter().fold(TX, |sum, (count, each)| {
        sum.saturating_add(count.saturating_mul(*each))
    })
}

/// What the parts of a transaction of reports take, for whoever fills one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportGas {
    /// The transaction itself.
    pub tx: u64,
    /// A page.
    pub page: u64,
    /// A report.
    pub report: u64,
    /// A section that travels with one.
    pub section: u64,
    /// A byte of it.
    pub section_byte: u64,
}

impl ReportGas {
    /// A report with a section of so many bytes; 0: with none.
    #[must_use]
    pub fn of(&self, section_len: u32) -> u64 {
        let section = if section_len == 0 {
            0
        } else {
            self.section + u64::from(section_len) * self.section_byte
        };
        self.report + section
    }
}

/// Least and most that a ratio becomes: what is beyond is no transaction of this kind.
const BOUNDS: (u64, u64) = (500, 4_000);
/// Part of the difference that a dearer one is followed by: what is signed too low fails.
const RISE: u64 = 2;
/// … and a cheaper one.
const FALL: u64 = 8;

/// What was used, in thousandths of what the figures say: a mean of all, the newest counting most.
#[derive(Debug, Clone, Copy)]
struct Ratio(u64);

impl Default for Ratio {
    fn default() -> Self {
        Self(1_000)
    }
}

impl Ratio {
    fn apply(self, gas: u64) -> u64 {
        gas.saturating_mul(self.0).div_ceil(1_000)
    }

    fn learn(&mut self, seen: u64) {
        let seen = seen.clamp(BOUNDS.0, BOUNDS.1);
        if seen > self.0 {
            self.0 += (seen - self.0).div_ceil(RISE);
        } else {
            self.0 -= (self.0 - seen).div_ceil(FALL);
        }
    }
}

/// The fit of one signing key: a ratio for each kind of transaction.
#[derive(Debug, Clone, Default)]
pub struct Fit {
    reports: Ratio,
    registrations: Ratio,
    sweeps: Ratio,
    prunes: Ratio,
}

impl Fit {
    /// What a transaction with this in it takes.
    #[must_use]
    pub fn gas(&self, load: Load) -> u64 {
        let ratio = match load {
            Load::Reports { .. } => self.reports,
            Load::Register { .. } => self.registrations,
            Load::Sweep { .. } => self.sweeps,
            Load::Prune { .. } => self.prunes,
        };
        ratio.apply(load.figures())
    }

    /// A simulation or a block has shown what one took.
    pub fn learn(&mut self, load: Load, used: u64) {
        let ratio = match load {
            Load::Reports { .. } => &mut self.reports,
            Load::Register { .. } => &mut self.registrations,
            Load::Sweep { .. } => &mut self.sweeps,
            Load::Prune { .. } => &mut self.prunes,
        };
        if let Some(seen) = used.saturating_mul(1_000).checked_div(load.figures()) {
            ratio.learn(seen);
        }
    }

    /// What is signed for the parts of a transaction of reports, times `adjustment`.
    #[must_use]
    pub fn report_gas(&self, adjustment: Adjustment) -> ReportGas {
        let signed = |gas| adjustment.apply(self.reports.apply(gas));
        ReportGas {
            tx: signed(TX),
            page: signed(PAGE),
            report: signed(REPORT).saturating_add(CHECK_AGAIN),
            section: signed(SECTION),
            section_byte: signed(SECTION_BYTE),
        }
    }
}

/// Whether what was used is off the fit by more than a quarter.
#[must_use]
pub fn is_off(fitted: u64, used: u64) -> bool {
    fitted.abs_diff(used) > fitted / 4
}

/// What messages of the operator key take, which come too seldom to be learnt from.
#[must_use]
pub fn of_acts(messages: &[ExecuteMsg]) -> u64 {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let anchors = messages.iter().filter(|m| matches!(m, ExecuteMsg::Anchor { .. }));
    let anchors = anchors.count();
    let others = messages.len().saturating_sub(anchors);
    sum(&[(count(anchors), ANCHOR), (count(others), ACT)])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reports(reports: u64, pages: u64) -> Load {
        Load::Reports {
            pages,
            reports,
            sections: 0,
            section_bytes: 0,
            steps: 0,
        }
    }

    fn with_sections(of: Load, count: u64, bytes: u64, stepping: u64) -> Load {
        let Load::Reports { pages, reports, .. } = of else {
            panic!("{of:?}")
        };
        Load::Reports {
            pages,
            reports,
            sections: count,
            section_bytes: bytes,
            steps: stepping,
        }
    }

    /// What the bench measured of a transaction that pays nothing.
    fn measured(list: &str, key: &str, is: &Value) -> u64 {
        let budget = include_str!("../../../../tests/gas-budget.json");
        let budget: Value = serde_json::from_str(budget).unwrap();
        let rows = budget["measured"][list].as_array().unwrap();
        let row = rows.iter().find(|row| row[key] == *is);
        row.unwrap_or_else(|| panic!("no {is} in {list}"))["gas_used"]
            .as_u64()
            .unwrap()
    }

    #[test]
    fn the_figures_come_within_an_eighth_of_what_was_measured() {
        let close = |load: Load, measured: u64| {
            let figures = load.figures() - FEE;
            assert!(
                figures.abs_diff(measured) * 8 <= measured,
                "{load:?}: {figures}, measured {measured}"
            );
        };
        for (count, pages) in [(1, 1), (10, 1), (50, 1), (256, 4), (1024, 16)] {
            close(reports(count, pages), measured("batches", "n", &json!(count)));
        }
        let variant = |name: &str| measured("variants", "name", &json!(name));
        close(
            reports(50, 10),
            variant("50 reports spread over 10 clusters of 5"),
        );
        // What changed has sections of 50 bytes.
        close(
            with_sections(reports(256, 4), 13, 13 * 50, 0),
            variant("256 reports, 5 % with changed details"),
        );
        close(
            with_sections(reports(50, 1), 50, 50 * 50, 0),
            variant("50 reports, every one with new job ids"),
        );
        let dearest = "submit_reports, 1,024 nodes return from OFFLINE, sections of 367 bytes";
        close(
            with_sections(reports(1024, 16), 1024, 1024 * 367, 1024),
            measured("messages", "name", &json!(dearest)),
        );
        let upkeep = |name: &str| measured("upkeep", "name", &json!(name));
        close(
            Load::Register { nodes: 1 },
            upkeep("register_node, mean while a page of 64 fills"),
        );
        close(
            Load::Sweep { pages: 16, steps: 0 },
            upkeep("sweep of 1,024 silent nodes, nothing changes"),
        );
        close(
            Load::Sweep {
                pages: 16,
                steps: 1024,
            },
            upkeep("sweep of 1,024 OFFLINE nodes, all become DEREGISTERED, jobs failed"),
        );
        for (nodes, name) in [
            (1, "prune of 1 node"),
            (32, "prune of 32 nodes"),
            (256, "prune of 256 nodes"),
        ] {
            close(Load::Prune { nodes }, upkeep(name));
        }
    }

    #[test]
    fn an_act_of_the_operator_key_has_enough() {
        let resume = |node: &str| ExecuteMsg::ResumeNode {
            cluster_id: None,
            node_id: node.parse().unwrap(),
        };
        let anchor = ExecuteMsg::Anchor {
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            kind: "audit-head".into(),
            digest: "00".repeat(32),
        };
        for (messages, name) in [
            (vec![resume("node-a")], "drain_node, longest reason"),
            (vec![anchor.clone()], "anchor"),
        ] {
            assert!(
                of_acts(&messages) >= measured("messages", "name", &json!(name)) + FEE,
                "{name}"
            );
        }
        assert_eq!(
            of_acts(&[anchor.clone(), anchor, resume("node-a")]),
            TX + 2 * ANCHOR + ACT
        );
    }

    #[test]
    fn it_learns_fast_upwards_and_slowly_downwards_and_stays_within_bounds() {
        let load = reports(64, 1);
        let usual = load.figures();
        let mut fit = Fit::default();
        assert_eq!(fit.gas(load), usual);
        fit.learn(load, 2 * usual);
        assert_eq!(fit.gas(load), usual * 3 / 2, "half of the way");
        fit.learn(load, usual);
        assert_eq!(fit.reports.0, 1_500 - 63, "an eighth");
        for (used, settles) in [(2 * usual, 2_000), (usual, 1_000), (100 * usual, 4_000), (1, 500)] {
            for _ in 0..64 {
                fit.learn(load, used);
            }
            assert_eq!(fit.reports.0, settles);
        }
    }

    #[test]
    fn each_kind_learns_for_itself() {
        let loads = [
            reports(1, 1),
            Load::Register { nodes: 1 },
            Load::Sweep { pages: 1, steps: 1 },
            Load::Prune { nodes: 1 },
        ];
        for one in loads {
            let mut fit = Fit::default();
            fit.learn(one, 2 * one.figures());
            for other in loads {
                let learnt = fit.gas(other) != other.figures();
                assert_eq!(learnt, one == other, "{one:?} of {other:?}");
            }
        }
    }

    #[test]
    fn what_is_filled_by_its_parts_has_room_for_all_that_is_signed() {
        let mut fit = Fit::default();
        let adjustment = "1.1".parse::<Adjustment>().unwrap();
        for _ in 0..2 {
            let parts = fit.report_gas(adjustment);
            let by_parts = parts.tx + 2 * parts.page + 20 * parts.of(0) + 10 * parts.of(300);
            let load = with_sections(reports(30, 2), 10, 3_000, 0);
            let signed = adjustment.apply(fit.gas(load)) + 30 * CHECK_AGAIN;
            assert!(
                (signed..signed + 10_000).contains(&by_parts),
                "{by_parts}, {signed}"
            );
            fit.learn(load, 3 * load.figures());
        }
    }

    #[test]
    fn a_quarter_is_off() {
        assert!(!is_off(1_000, 1_250) && is_off(1_000, 1_251));
        assert!(!is_off(1_000, 750) && is_off(1_000, 749));
    }
}
