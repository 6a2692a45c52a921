//! The figures that a bench measures, as `target/bench/gas.json` and `tests/gas-budget.json` have them.

use serde::{Deserialize, Serialize};

/// A row: n reports in one message of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Reports.
    pub n: u64,
    /// Clusters they are spread over.
    pub clusters: u64,
    /// Gas of the transaction.
    pub gas_used: u64,
    /// The same for each report, rounded up.
    pub gas_per_report: u64,
    /// Size of the transaction.
    pub tx_bytes: u64,
}

/// A row of another shape than a cluster of exactly n nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// What is different.
    pub name: String,
    /// The figures.
    #[serde(flatten)]
    pub row: Row,
}

/// A transaction with one message that is no report, or a mean over such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figure {
    /// What was done.
    pub name: String,
    /// To how many nodes, 1 where nodes are not what it is about.
    pub count: u64,
    /// Gas of the transaction.
    pub gas_used: u64,
    /// The same for each of them, rounded up.
    pub gas_each: u64,
    /// Size of the transaction.
    pub tx_bytes: u64,
}

impl Figure {
    /// One transaction that did something to `count` nodes.
    #[must_use]
    pub fn new(name: impl Into<String>, count: u64, spent: Spent) -> Self {
        Self {
            name: name.into(),
            count,
            gas_used: spent.gas,
            gas_each: spent.gas.div_ceil(count.max(1)),
            tx_bytes: spent.bytes,
        }
    }
}

/// What one transaction took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Gas used.
    pub gas: u64,
    /// Size.
    pub bytes: u64,
}

/// Everything measured. Without a fee and with an unpinned contract where nothing else is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// One cluster of exactly n nodes, all of them reporting.
    pub batches: Vec<Row>,
    /// Reports in other shapes.
    pub variants: Vec<Variant>,
    /// The same signed reports with the usual layouts.
    pub layouts: Vec<Variant>,
    /// Batches with the contract's code pinned.
    pub pinned: Vec<Row>,
    /// Registrations while a page fills, sweeps, prunes.
    pub upkeep: Vec<Figure>,
    /// The dearest message of each kind; names begin with the message's name.
    pub messages: Vec<Figure>,
}

impl Measured {
    /// Every figure's name with its gas for each report or node.
    pub fn each(&self) -> impl Iterator<Item = (String, u64)> {
        let rows = |kind: &'static str, rows: &[Row]| {
            rows.iter()
                .map(|r| (format!("{kind}: {} reports", r.n), r.gas_per_report))
                .collect::<Vec<_>>()
        };
        let variants = |list: &[Variant]| {
            list.iter()
                .map(|v| (v.name.clone(), v.row.gas_per_report))
                .collect::<Vec<_>>()
        };
        let figures = |list: &[Figure]| {
            list.iter()
                .map(|f| (f.name.clone(), f.gas_each))
                .collect::<Vec<_>>()
        };
        [
            rows("batches", &self.batches),
            rows("pinned", &self.pinned),
            variants(&self.variants),
            variants(&self.layouts),
            figures(&self.upkeep),
            figures(&self.messages),
        ]
        .into_iter()
        .flatten()
    }

    /// The batch of n reports.
    #[must_use]
    pub fn batch(&self, n: u64) -> Option<&Row> {
        self.batches.iter().find(|r| r.n == n)
    }

    /// The variant of that name.
    #[must_use]
    pub fn variant(&self, name: &str) -> Option<&Row> {
        let all = self.variants.iter().chain(&self.layouts);
        all.into_iter().find(|v| v.name == name).map(|v| &v.row)
    }
}
