//! `tests/promises.toml`: what the documentation promises, and the test, bench or stage that proves each promise.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    promise: Vec<Promise>,
}

/// One promise. `proof` entries are `path.rs::test_name`, `stage:name` (of `scripts/test`) or `bench:name` (of
/// `scripts/bench`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    text: String,
    /// Where the promise is made: a document of the repository.
    source: String,
    proof: Vec<String>,
}

/// Tables of the documentation whose rows are promises: file, heading, column.
const TABLES: [(&str, &str, usize); 2] = [
    ("README.md", "## Guarantees", 1),
    ("docs/provider.md", "## Faults that must not come back", 2),
];

/// Prints the table; fails if a proof does not exist or a row of [`TABLES`] stands without one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let path = root.join("tests/promises.toml");
    let text = std::fs::read_to_string(&path).context("cannot read tests/promises.toml")?;
    let table: Table = toml::from_str(&text).context("tests/promises.toml")?;
    let mut faults = Vec::new();
    for promise in &table.promise {
        println!("{} ({})", promise.text, promise.source);
        if promise.proof.is_empty() {
            faults.push(format!("no proof: {}", promise.text));
        }
        for proof in &promise.proof {
            println!("    {proof}");
            if let Some(fault) = fault(root, proof)? {
                faults.push(format!("{fault} (proof of: {})", promise.text));
            }
        }
    }
    let proved: BTreeSet<&str> = table.promise.iter().map(|p| p.text.as_str()).collect();
    for (file, heading, column) in TABLES {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        let mut rows = cells(&text, heading, column).peekable();
        if rows.peek().is_none() {
            faults.push(format!("{file} has no table under {heading:?}"));
        }
        for promised in rows {
            if !proved.contains(promised) {
                faults.push(format!(
                    "{file} promises this, tests/promises.toml does not prove it: {promised}"
                ));
            }
        }
    }
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    if !faults.is_empty() {
        bail!("{} promises are not proved", faults.len());
    }
    println!("{} promises, each with a proof that exists", table.promise.len());
    Ok(())
}

/// Says what is wrong with a proof, if anything is.
fn fault(root: &Path, proof: &str) -> Result<Option<String>> {
    if let Some(stage) = proof.strip_prefix("stage:") {
        let script =
            std::fs::read_to_string(root.join("scripts/test")).context("cannot read scripts/test")?;
        return Ok(
            (!script.contains(&format!("\nstage_{}()", stage.replace('-', "_"))))
                .then(|| format!("scripts/test has no stage {stage}")),
        );
    }
    if let Some(bench) = proof.strip_prefix("bench:") {
        let script =
            std::fs::read_to_string(root.join("scripts/bench")).context("cannot read scripts/bench")?;
        return Ok((!script.contains(&format!("\nbench_{bench}()")))
            .then(|| format!("scripts/bench has no bench {bench}")));
    }
    let Some((file, name)) = proof.split_once("::") else {
        return Ok(Some(format!(
            "{proof:?} is neither path.rs::test, stage:name nor bench:name"
        )));
    };
    let Ok(text) = std::fs::read_to_string(root.join(file)) else {
        return Ok(Some(format!("{file} does not exist")));
    };
    Ok((!has_test(&text, name)).then(|| format!("{file} has no test {name}")))
}

/// True if the text holds a function of that name that a test attribute or a test macro introduces, or (in a script of
/// another language) a test of that title.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let starts = [format!("fn {name}("), format!("async fn {name}(")];
    lines.iter().enumerate().any(|(at, line)| {
        let titled = line.starts_with("test(") && line.contains(name);
        let function = starts
            .iter()
            .any(|start| line.trim_start_matches("pub(crate) ").starts_with(start.as_str()));
        let attributed = || {
            lines
                .iter()
                .take(at)
                .rev()
                .take_while(|l| l.starts_with("#[") || l.starts_with("//"))
                .any(|l| {
                    l.starts_with("#[test]") || l.starts_with("#[tokio::test") || l.starts_with("#[test_case")
                })
        };
        titled || (function && (attributed() || text.contains("proptest!")))
    })
}

/// Cells of one column of the table under this heading.
fn cells<'a>(text: &'a str, heading: &str, column: usize) -> impl Iterator<Item = &'a str> {
    let section = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    section
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .filter_map(move |line| line.split('|').nth(column))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_a_function_with_a_test_attribute() {
        let text =
            "#[test]\nfn one() {}\nfn two() {}\n#[tokio::test(flavor = \"x\")]\n// why\nasync fn three() {}";
        assert!(has_test(text, "one"));
        assert!(!has_test(text, "two"));
        assert!(has_test(text, "three"));
    }

    #[test]
    fn what_a_table_promises_are_the_cells_of_one_column() {
        let readme = "x\n## Guarantees\n\n| What | Proof |\n|---|---|\n| A holds | t |\n| B holds | t |\n\n## Layout\n| no | x |";
        assert_eq!(
            cells(readme, "## Guarantees", 1).collect::<Vec<_>>(),
            ["A holds", "B holds"]
        );
        assert_eq!(cells(readme, "## Guarantees", 2).count(), 2);
        assert_eq!(cells(readme, "## Nothing", 1).count(), 0);
    }

    #[test]
    fn every_promise_has_a_proof_that_exists() {
        run(&crate::tree::root().unwrap()).unwrap();
    }
}
