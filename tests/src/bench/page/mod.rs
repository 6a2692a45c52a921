//! The tables of `docs/gas.md`, as the bench prints them.

mod parts;

use std::fmt::Write as _;

use anyhow::{Context, Result};
use parts::{blocks, floor, sweep};

use super::figures::{Figure, Measured, Row, Variant};

const END: &str = "<!-- end -->";

/// Every table under its heading.
#[must_use]
pub fn tables(measured: &Measured) -> String {
    let mut text = String::new();
    for (name, table) in sections(measured) {
        if let Some(table) = table {
            let _written = write!(text, "\n{name}\n\n{table}");
        }
    }
    text
}

/// The page with its tables replaced: each stands between `<!-- gas: NAME -->` and `<!-- end -->`.
///
/// # Errors
/// If a table has no place in the page, or no figures.
pub fn fill(page: &str, measured: &Measured) -> Result<String> {
    let mut page = page.to_owned();
    for (name, table) in sections(measured) {
        let table = table.with_context(|| format!("no figures for the table {name}"))?;
        let mark = format!("<!-- gas: {name} -->\n");
        let (before, rest) = page
            .split_once(&mark)
            .with_context(|| format!("the page has no place for the table {name}: {}", mark.trim()))?;
        let (_, after) = rest
            .split_once(END)
            .with_context(|| format!("the table {name} has no end: {END}"))?;
        page = format!("{before}{mark}\n{table}\n{END}{after}");
    }
    Ok(page)
}

/// Name and table; none where its figures were not measured.
fn sections(m: &Measured) -> [(&'static str, Option<String>); 8] {
    [
        ("reports", (!m.batches.is_empty()).then(|| reports(m))),
        ("layouts", layouts(m)),
        ("pinning", pinning(m)),
        ("upkeep", (!m.upkeep.is_empty()).then(|| upkeep(&m.upkeep))),
        (
            "messages",
            (!m.messages.is_empty()).then(|| messages(&m.messages)),
        ),
        ("blocks", blocks(m)),
        ("floor", floor(m)),
        ("sweep", sweep(&m.upkeep)),
    ]
}

fn reports(m: &Measured) -> String {
    let mut table =
        "| reports | gas | gas a report | bytes of the transaction |\n|---|---|---|---|\n".to_owned();
    for row in &m.batches {
        let n = number(row.n);
        let name = match row.n {
            1 => "1".to_owned(),
            _ => format!("{n}, a cluster of {n}"),
        };
        line(&mut table, &name, row);
    }
    for Variant { name, row } in &m.variants {
        line(&mut table, name, row);
    }
    table
}

fn line(table: &mut String, name: &str, row: &Row) {
    let (gas, each, bytes) = (
        number(row.gas_used),
        number(row.gas_per_report),
        number(row.tx_bytes),
    );
    let _written = writeln!(table, "| {name} | {gas} | {each} | {bytes} |");
}

/// Against the registry's row of as many reports.
fn layouts(m: &Measured) -> Option<String> {
    let mut table =
        "| layout | gas a report | bytes a report | times the registry's gas |\n|---|---|---|---|\n"
            .to_owned();
    if m.layouts.is_empty() {
        return None;
    }
    let ours = m.batch(50)?;
    let mut row = |name: &str, row: &Row| {
        let _written = writeln!(
            table,
            "| {name} | {} | {} | {} |",
            number(row.gas_per_report),
            number(row.tx_bytes.div_ceil(row.n)),
            tenths(row.gas_per_report * 10 / ours.gas_per_report.max(1))
        );
    };
    for Variant { name, row: figures } in &m.layouts {
        row(name, figures);
    }
    for n in [50, 256, 1_024] {
        if let Some(figures) = m.batch(n) {
            row(
                &format!("this registry, {} reports in a transaction", number(n)),
                figures,
            );
        }
    }
    Some(table)
}

fn pinning(m: &Measured) -> Option<String> {
    if m.pinned.is_empty() || m.batches.is_empty() {
        return None;
    }
    let mut table =
        "| reports | gas, not pinned | gas, pinned | saved | pinned, gas a report |\n|---|---|---|---|---|\n"
            .to_owned();
    for pinned in &m.pinned {
        let free = m.batch(pinned.n)?;
        let _written = writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            number(pinned.n),
            number(free.gas_used),
            number(pinned.gas_used),
            number(free.gas_used.saturating_sub(pinned.gas_used)),
            number(pinned.gas_per_report),
        );
    }
    Some(table)
}

fn upkeep(figures: &[Figure]) -> String {
    let mut table =
        "| message | gas | gas a node | bytes of the transaction |\n|---|---|---|---|\n".to_owned();
    for f in figures {
        let _written = writeln!(
            table,
            "| {} | {} | {} | {} |",
            f.name,
            number(f.gas_used),
            number(f.gas_each),
            number(f.tx_bytes)
        );
    }
    table
}

fn messages(figures: &[Figure]) -> String {
    let mut table = "| message | gas | bytes of the transaction |\n|---|---|---|\n".to_owned();
    for f in figures {
        let (gas, bytes) = (number(f.gas_used), number(f.tx_bytes));
        let _written = writeln!(table, "| {} | {gas} | {bytes} |", f.name);
    }
    table
}

/// With commas between thousands.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn tenths(n: u64) -> String {
    format!("{}.{}", n / 10, n % 10)
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::super::measure::{FILL_MEAN, FILL_WORST, SWEEP_IDLE, SWEEP_STALE};
    use super::*;

    fn budget() -> Budget {
        serde_json::from_str(include_str!("../../../gas-budget.json")).unwrap()
    }

    #[test]
    fn the_page_shows_the_run_that_was_committed() {
        let page = include_str!("../../../../docs/gas.md");
        assert_eq!(
            fill(page, &budget().measured).unwrap(),
            page,
            "scripts/bench gas --update"
        );
    }

    #[test]
    fn no_run_may_pass_what_was_promised() {
        let ceilings = budget().ceilings;
        for (name, most) in [
            ("batches: 50 reports", 5_000),
            ("batches: 256 reports", 3_200),
            ("batches: 1024 reports", 2_900),
            ("50 reports spread over 10 clusters of 5", 7_500),
            (SWEEP_IDLE, 300),
            (SWEEP_STALE, 1_800),
            (FILL_MEAN, 300_000),
            (FILL_WORST, 370_000),
        ] {
            assert!(ceilings.get(name).is_some_and(|c| *c <= most), "{name}");
        }
        assert!(budget().faults(&budget().measured, true).is_empty());
    }

    #[test]
    fn thousands_have_commas() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(number),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn a_page_without_a_place_for_a_table_is_refused() {
        assert!(fill("no marks", &budget().measured).is_err());
    }
}
