//! The two chains must behave alike: what the end-to-end suite recorded on one equals what it recorded on the other.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

const CHAINS: [&str; 2] = ["embedded", "wasmd"];

/// Compares `target/e2e/outcomes/{embedded,wasmd}`: the same files, the same content.
pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("target/e2e/outcomes");
    let [embedded, wasmd] = CHAINS.map(|chain| read(&folder.join(chain)));
    let (embedded, wasmd) = (embedded?, wasmd?);
    let differences = compare(&embedded, &wasmd);
    for difference in &differences {
        eprintln!("error: {difference}");
    }
    if !differences.is_empty() {
        bail!(
            "{} scenarios ended differently on the two chains; where they differ, the embedded chain is wrong",
            differences.len()
        );
    }
    println!("{} scenarios ended alike on both chains", embedded.len());
    Ok(())
}

fn compare(embedded: &BTreeMap<String, Value>, wasmd: &BTreeMap<String, Value>) -> Vec<String> {
    let mut names: Vec<&String> = embedded.keys().chain(wasmd.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let missing = Value::String("(not recorded)".into());
    names
        .into_iter()
        .filter_map(|name| {
            let (a, b) = (
                embedded.get(name).unwrap_or(&missing),
                wasmd.get(name).unwrap_or(&missing),
            );
            (a != b).then(|| format!("{name}\n  embedded: {a}\n  wasmd:    {b}"))
        })
        .collect()
}

fn read(folder: &Path) -> Result<BTreeMap<String, Value>> {
    let entries = std::fs::read_dir(folder).with_context(|| {
        format!(
            "{} is missing. Remedy: scripts/test --only e2e,wasmd-e2e",
            folder.display()
        )
    })?;
    let mut outcomes = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        outcomes.insert(
            name,
            serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?,
        );
    }
    ensure!(
        !outcomes.is_empty(),
        "{} is empty: the suite recorded nothing",
        folder.display()
    );
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_scenario_that_only_one_chain_recorded_is_a_difference() {
        let a = BTreeMap::from([("x".to_owned(), json!(1)), ("y".to_owned(), json!(2))]);
        let b = BTreeMap::from([("x".to_owned(), json!(1))]);
        assert_eq!(compare(&a, &b).len(), 1);
        assert!(compare(&a, &a).is_empty());
    }
}
