//! What may be used: the figures of a run that was committed, and ceilings that no run may pass.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::figures::Measured;

/// `tests/gas-budget.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How much more than `measured` a run may take.
    pub tolerance_percent: u64,
    /// Gas each that is too much, whatever was measured before; by the figure's name.
    pub ceilings: BTreeMap<String, u64>,
    /// The run that `docs/gas.md` shows.
    pub measured: Measured,
}

impl Budget {
    /// What is wrong with a run: too dear, or without a budget; if it is `whole`, also what is missing in it.
    #[must_use]
    pub fn faults(&self, run: &Measured, whole: bool) -> Vec<String> {
        let budgets: BTreeMap<String, u64> = self.measured.each().collect();
        let mut faults = Vec::new();
        let mut seen = BTreeSet::new();
        for (name, gas) in run.each() {
            match budgets.get(&name) {
                None => faults.push(format!("{name} has no budget")),
                Some(limit) if gas * 100 > limit * (100 + self.tolerance_percent) => {
                    faults.push(format!("{name}: {gas} gas each, budget {limit}"));
                }
                Some(_) => {}
            }
            if let Some(ceiling) = self.ceilings.get(&name).filter(|c| gas > **c) {
                faults.push(format!("{name}: {gas} gas each, never more than {ceiling}"));
            }
            if !seen.insert(name.clone()) {
                faults.push(format!("two figures are named {name}"));
            }
        }
        let wanted = budgets.keys().chain(self.ceilings.keys());
        let missing: BTreeSet<&String> = wanted.filter(|name| whole && !seen.contains(*name)).collect();
        faults.extend(missing.into_iter().map(|name| format!("{name} was not measured")));
        faults
    }

    /// Figures so far below their budget that the budget should follow.
    #[must_use]
    pub fn cheaper(&self, run: &Measured) -> Vec<String> {
        let budgets: BTreeMap<String, u64> = self.measured.each().collect();
        run.each()
            .filter_map(|(name, gas)| {
                let limit = budgets.get(&name)?;
                (gas * (100 + self.tolerance_percent) < limit * 100)
                    .then(|| format!("{name}: {gas} gas each, budget {limit}"))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Row;
    use super::*;

    fn run(gas: u64) -> Measured {
        let row = Row {
            n: 50,
            clusters: 1,
            gas_used: gas * 50,
            gas_per_report: gas,
            tx_bytes: 1,
        };
        Measured {
            batches: vec![row],
            ..Measured::default()
        }
    }

    fn budget() -> Budget {
        Budget {
            tolerance_percent: 3,
            ceilings: [("batches: 50 reports".to_owned(), 5_000)].into(),
            measured: run(4_900),
        }
    }

    #[test]
    fn a_figure_may_rise_by_the_tolerance_but_never_above_its_ceiling() {
        assert!(budget().faults(&run(4_900), true).is_empty());
        assert!(budget().faults(&run(5_000), true).is_empty());
        assert_eq!(budget().faults(&run(5_001), true).len(), 1);
        assert_eq!(budget().faults(&run(5_048), true).len(), 2);
    }

    #[test]
    fn a_figure_without_budget_and_a_budget_without_figure_are_faults() {
        let empty = Measured::default();
        assert_eq!(
            budget().faults(&empty, true),
            ["batches: 50 reports was not measured"]
        );
        assert!(budget().faults(&empty, false).is_empty());
        let none = Budget {
            measured: empty,
            ..budget()
        };
        assert_eq!(none.faults(&run(1), true), ["batches: 50 reports has no budget"]);
    }

    #[test]
    fn a_budget_that_is_far_too_high_is_said() {
        assert!(budget().cheaper(&run(4_800)).is_empty());
        assert_eq!(budget().cheaper(&run(4_700)).len(), 1);
    }
}
