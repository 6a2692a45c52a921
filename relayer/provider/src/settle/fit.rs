//! What a transaction takes of gas, from what is in it: measured figures times what was learnt since the start. Pure.
//!
//! Where a node simulates, the simulation has the last word, and the fit learns from it. Where none does, the fit is what is
//! signed by, and learns from blocks.

use hpc_chain::gas::Adjustment;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::report::batch::PAGE_SLOTS;

use super::duty::Extent;

/// A fee that is paid. All figures are those of `docs/gas.md` (`tests/gas-budget.json`), measured on wasmd with code that is
/// not pinned; a test holds them to it.
const FEE: u64 = 18_000;
/// A transaction that pays a fee, and its first message.
const TX: u64 = 98_300 + FEE;
/// A page of reports and its cluster, without its nodes: it is read and written whole.
const PAGE: u64 = 10_300;
/// A node of it that does not report.
const RESIDENT: u64 = 921;
/// … and one that does.
const REPORT: u64 = 2_700;
/// The digests of a page, all of which are written once a section travels with one of its reports.
const SECTION_PAGE: u64 = 37_000;
const SECTION: u64 = 4_600;
const SECTION_BYTE: u64 = 42;
/// The statistics of a page, all of which are written once a node of it comes back from OFFLINE.
const STEPPED_PAGE: u64 = 21_500;
/// A node's state that changes.
pub const STEP: u64 = 1_300;
/// A report whose signature is verified alone, once one of its batch is bad.
pub const CHECK_AGAIN: u64 = 250;
/// The dearest while a page fills, which is written whole: the mean is 135,000.
const REGISTRATION: u64 = 208_000;
const SWEPT_PAGE: u64 = 5_700;
/// A page that is written, because a sweep steps one of its nodes.
const SWEPT_STEPPED_PAGE: u64 = 50_000;
/// A node that falls to STALE or OFFLINE.
const SWEPT: u64 = 640;
/// … to DEREGISTERED.
const DEREGISTERED: u64 = 3_900;
/// A page that a prune removes nodes from.
const PRUNE_PAGE: u64 = 208_000;
const PRUNED: u64 = 17_700;
/// The dearest act of the operator key.
const ACT: u64 = 96_000;
const ANCHOR: u64 = 30_000;

/// What a transaction has in it, as far as its gas depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Reports.
    Reports(ReportLoad),
    /// Registrations.
    Register {
        /// How many.
        nodes: u64,
    },
    /// A sweep.
    Sweep(Extent),
    /// A prune.
    Prune {
        /// Pages that they are in.
        pages: u64,
        /// Nodes that it removes.
        nodes: u64,
    },
}

/// What a transaction of reports has in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportLoad {
    /// Pages that are written.
    pub pages: u64,
    /// Nodes of these pages that do not report.
    pub others: u64,
    /// How many do.
    pub reports: u64,
    /// Pages with a report that a section travels with.
    pub section_pages: u64,
    /// Sections.
    pub sections: u64,
    /// Their bytes.
    pub section_bytes: u64,
    /// Pages with a node whose state changes with its report.
    pub stepped_pages: u64,
    /// Such nodes.
    pub steps: u64,
}

impl Load {
    /// By the measured figures.
    fn figures(self) -> u64 {
        match self {
            Self::Reports(load) => sum(&[
                (load.pages, PAGE),
                (load.others, RESIDENT),
                (load.reports, REPORT),
                (load.section_pages, SECTION_PAGE),
                (load.sections, SECTION),
                (load.section_bytes, SECTION_BYTE),
                (load.stepped_pages, STEPPED_PAGE),
                (load.steps, STEP),
            ]),
            Self::Register { nodes } => sum(&[(nodes, REGISTRATION)]),
            Self::Sweep(found) => sum(&[
                (found.pages, SWEPT_PAGE),
                (found.stepped_pages, SWEPT_STEPPED_PAGE),
                (found.steps, SWEPT),
                (found.deregistered, DEREGISTERED),
            ]),
            Self::Prune { pages, nodes } => sum(&[(pages, PRUNE_PAGE), (nodes, PRUNED)]),
        }
    }

    /// The most that it may turn out to be: a prune removes the oldest of all clusters, each of which may be one of another
    /// gateway's, in a page of its own.
    fn at_most(self) -> Self {
        match self {
            Self::Prune { nodes, .. } => Self::Prune { pages: nodes, nodes },
            Self::Reports(_) | Self::Register { .. } | Self::Sweep(_) => self,
        }
    }
}

/// A transaction of so many parts of so much each.
fn sum(parts: &[(u64, u64)]) -> u64 {
    parts.iter().fold(TX, |sum, (count, each)| {
        sum.saturating_add(count.saturating_mul(*each))
    })
}

/// The most that is signed for the parts of a transaction of reports, for whoever fills one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportGas {
    /// The transaction itself.
    pub tx: u64,
    /// A page with all the nodes that it can have, whose state may change.
    pub page: u64,
    /// What it is more for a report.
    pub report: u64,
    /// … for the first section of the page.
    pub section_page: u64,
    /// … for a section that travels with a report.
    pub section: u64,
    /// … for a byte of it.
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

/// Least and most that a ratio becomes, in thousandths: what is beyond is no transaction of this kind.
const LEAST: u64 = 500;
const MOST: u64 = 4_000;
/// The same of registrations, whose figure is the dearest one's: cheap ones before say nothing of the next. Times 1.3, as it
/// is signed, this is the figure.
const LEAST_OF_REGISTRATIONS: u64 = 770;
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

    fn learn(&mut self, seen: u64, least: u64) {
        let seen = seen.clamp(least, MOST);
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
            Load::Reports(_) => self.reports,
            Load::Register { .. } => self.registrations,
            Load::Sweep(_) => self.sweeps,
            Load::Prune { .. } => self.prunes,
        };
        ratio.apply(load.figures())
    }

    /// What it takes at most, where nobody simulates it.
    #[must_use]
    pub fn most(&self, load: Load) -> u64 {
        self.gas(load.at_most())
    }

    /// A simulation or a block has shown what one took.
    pub fn learn(&mut self, load: Load, used: u64) {
        let (ratio, least) = match load {
            Load::Reports(_) => (&mut self.reports, LEAST),
            Load::Register { .. } => (&mut self.registrations, LEAST_OF_REGISTRATIONS),
            Load::Sweep(_) => (&mut self.sweeps, LEAST),
            Load::Prune { .. } => (&mut self.prunes, LEAST),
        };
        if let Some(seen) = used.saturating_mul(1_000).checked_div(load.figures()) {
            ratio.learn(seen, least);
        }
    }

    /// The most that is signed for the parts of a transaction of reports, by `adjustment`.
    #[must_use]
    pub fn report_gas(&self, adjustment: Adjustment) -> ReportGas {
        let signed = |gas| adjustment.apply(self.reports.apply(gas));
        // Of a node that reports it is signed times the ratio, of another one as it stands.
        let step = signed(STEP).max(STEP);
        let slot = signed(RESIDENT).saturating_add(step);
        ReportGas {
            tx: signed(TX),
            page: signed(PAGE + STEPPED_PAGE).saturating_add(slot.saturating_mul(u64::from(PAGE_SLOTS))),
            report: signed(REPORT - RESIDENT).saturating_add(CHECK_AGAIN),
            section_page: signed(SECTION_PAGE),
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

    fn reports(reports: u64, pages: u64) -> ReportLoad {
        ReportLoad {
            pages,
            reports,
            ..ReportLoad::default()
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
        // Below it by no more than reports are multiplied with when they are signed.
        let close = |load: Load, measured: u64| {
            let figures = load.figures() - FEE;
            assert!(
                figures * 11 >= measured * 10 && figures * 8 <= measured * 9,
                "{load:?}: {figures}, measured {measured}"
            );
        };
        for (count, pages) in [(1, 1), (10, 1), (50, 1), (256, 4), (1024, 16)] {
            let load = Load::Reports(reports(count, pages));
            close(load, measured("batches", "n", &json!(count)));
        }
        for (load, name) in [
            (reports(50, 10), "50 reports spread over 10 clusters of 5"),
            (
                ReportLoad {
                    others: 14,
                    ..reports(50, 1)
                },
                "50 reports of a full page of 64",
            ),
            // What changed has sections of 50 bytes; of 256 nodes the first do.
            (
                ReportLoad {
                    section_pages: 1,
                    sections: 13,
                    section_bytes: 13 * 50,
                    ..reports(256, 4)
                },
                "256 reports, 5 % with changed details",
            ),
            (
                ReportLoad {
                    section_pages: 1,
                    sections: 50,
                    section_bytes: 50 * 50,
                    ..reports(50, 1)
                },
                "50 reports, every one with new job ids",
            ),
        ] {
            close(Load::Reports(load), measured("variants", "name", &json!(name)));
        }
        let dearest = "submit_reports, 1,024 nodes return from OFFLINE, sections of 367 bytes";
        let load = ReportLoad {
            section_pages: 16,
            sections: 1024,
            section_bytes: 1024 * 367,
            stepped_pages: 16,
            steps: 1024,
            ..reports(1024, 16)
        };
        close(Load::Reports(load), measured("messages", "name", &json!(dearest)));
        let upkeep = |name: &str| measured("upkeep", "name", &json!(name));
        close(
            Load::Register { nodes: 1 },
            upkeep("register_node, dearest while a page of 64 fills"),
        );
        let sweep = |stepped_pages, steps, deregistered| {
            Load::Sweep(Extent {
                pages: 16,
                stepped_pages,
                steps,
                deregistered,
            })
        };
        for (load, name) in [
            (sweep(0, 0, 0), "sweep of 1,024 silent nodes, nothing changes"),
            (
                sweep(16, 1024, 0),
                "sweep of 1,024 nodes, all become STALE and OFFLINE, jobs at risk",
            ),
            (
                sweep(16, 0, 1024),
                "sweep of 1,024 OFFLINE nodes, all become DEREGISTERED, jobs failed",
            ),
        ] {
            close(load, upkeep(name));
        }
        for (pages, nodes, name) in [
            (1, 1, "prune of 1 node"),
            (1, 32, "prune of 32 nodes"),
            (4, 256, "prune of 256 nodes"),
        ] {
            close(Load::Prune { pages, nodes }, upkeep(name));
        }
        // These are cheaper than the figure, which is that of the dearest of their kind.
        for (load, name) in [
            (
                Load::Register { nodes: 1 },
                "register_node, mean while a page of 64 fills",
            ),
            (sweep(16, 1024, 0), "sweep of 1,024 nodes, all become STALE"),
        ] {
            assert!(load.figures() - FEE >= upkeep(name), "{name}");
        }
    }

    #[test]
    fn a_page_is_paid_for_whole_however_few_of_its_nodes_it_is_written_for() {
        // The SDK's prices; a key has 33 bytes of the contract's and 9 of its own.
        let read = |slot: u64| 1_000 + 3 * (42 + 1 + 64 * slot);
        let write = |slot: u64| 2_000 + 30 * (42 + 1 + 64 * slot);
        let more = |load: Load, without: Load| load.figures() - without.figures();
        let few = ReportLoad {
            others: 63,
            ..reports(1, 1)
        };
        let with = |load: ReportLoad| more(Load::Reports(load), Load::Reports(few));
        let section = ReportLoad {
            section_pages: 1,
            sections: 1,
            section_bytes: 50,
            ..few
        };
        assert!(with(section) >= write(17) + 2_000 + 30 * (42 + 50));
        let returns = ReportLoad {
            stepped_pages: 1,
            steps: 1,
            ..few
        };
        assert!(with(returns) >= read(8) + write(8));
        let sweep = |n| {
            Load::Sweep(Extent {
                pages: 1,
                stepped_pages: n,
                steps: n,
                deregistered: 0,
            })
        };
        assert!(more(sweep(1), sweep(0)) >= write(22) + read(17));
        let bytes = 22 * 33 + 48 * 3 + 17 * 3;
        assert_eq!(RESIDENT, bytes, "hot record, key and tag, digest");
    }

    #[test]
    fn a_prune_has_enough_where_each_of_its_nodes_is_in_a_page_of_its_own() {
        let fit = Fit::default();
        let known = Load::Prune { pages: 1, nodes: 8 };
        assert_eq!(fit.most(known), TX + 8 * (PRUNE_PAGE + PRUNED));
        assert_eq!(fit.gas(known), TX + PRUNE_PAGE + 8 * PRUNED);
        let one = Load::Register { nodes: 1 };
        assert_eq!(fit.most(one), fit.gas(one));
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
        let load = Load::Reports(reports(64, 1));
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
    fn cheap_registrations_leave_enough_for_the_dearest() {
        let (mut fit, one) = (Fit::default(), Load::Register { nodes: 1 });
        for _ in 0..64 {
            fit.learn(one, TX + 60_000);
        }
        assert!(Adjustment::default().apply(fit.gas(one)) >= TX + REGISTRATION);
        assert!(fit.gas(one) < one.figures());
    }

    #[test]
    fn each_kind_learns_for_itself() {
        let loads = [
            Load::Reports(reports(1, 1)),
            Load::Register { nodes: 1 },
            Load::Sweep(Extent {
                pages: 1,
                stepped_pages: 1,
                steps: 1,
                deregistered: 0,
            }),
            Load::Prune { pages: 1, nodes: 1 },
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
        let adjustment = "1.1".parse::<Adjustment>().unwrap();
        for used in [1, 2, 3, 6] {
            let mut fit = Fit::default();
            let usual = Load::Reports(reports(64, 1));
            fit.learn(usual, used * usual.figures() / 2);
            let parts = fit.report_gas(adjustment);
            // Two pages with so many reports each, of nodes that all return; all others fall silent.
            for each in [1, 11, 32, 64] {
                let load = ReportLoad {
                    others: 2 * (64 - each),
                    section_pages: 2,
                    sections: 2,
                    section_bytes: 600,
                    stepped_pages: 2,
                    steps: 2 * each,
                    ..reports(2 * each, 2)
                };
                let margin = load.others * STEP + load.reports * CHECK_AGAIN;
                let signed = adjustment.apply(fit.gas(Load::Reports(load))) + margin;
                let by_parts = parts.tx
                    + 2 * (parts.page + parts.section_page)
                    + (load.reports - 2) * parts.of(0)
                    + 2 * parts.of(300);
                assert!(by_parts >= signed, "{used}, {each}: {by_parts}, {signed}");
            }
        }
    }

    #[test]
    fn a_quarter_is_off() {
        assert!(!is_off(1_000, 1_250) && is_off(1_000, 1_251));
        assert!(!is_off(1_000, 750) && is_off(1_000, 749));
    }
}
