//! Manifests: lints on in every crate, versions in one table, no dependency that nothing uses.

use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::Findings;
use crate::tree;

/// Dependencies that are there for their features alone; no source names them.
const FOR_FEATURES: [&str; 0] = [];

/// Checks the manifest of every member of the workspace.
pub(super) fn check(root: &Path, files: &[String], findings: &mut Findings) -> Result<()> {
    let workspace = manifest(root, "Cargo.toml")?;
    let members = workspace
        .get("workspace")
        .and_then(|w| w.get("members"))
        .and_then(Value::as_array)
        .context("Cargo.toml has no workspace.members")?;
    for member in members.iter().filter_map(Value::as_str) {
        let path = format!("{member}/Cargo.toml");
        let manifest = manifest(root, &path)?;
        if manifest
            .get("lints")
            .and_then(|l| l.get("workspace"))
            .and_then(Value::as_bool)
            != Some(true)
        {
            findings.error(format!("{path} lacks `[lints] workspace = true`"));
        }
        let sources = sources(root, files, member)?;
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(Value::as_table) else {
                continue;
            };
            for (name, value) in dependencies {
                check_dependency(&path, name, value, &sources, findings);
            }
        }
    }
    Ok(())
}

fn check_dependency(path: &str, name: &str, value: &Value, sources: &str, findings: &mut Findings) {
    if value.get("workspace").and_then(Value::as_bool) != Some(true) {
        findings.error(format!(
            "{path}: {name} has a version of its own. Remedy: `{name}.workspace = true`"
        ));
    }
    if !FOR_FEATURES.contains(&name) && !mentions(sources, &name.replace('-', "_")) {
        findings.error(format!("{path}: nothing uses {name}. Remedy: remove it"));
    }
}

/// True if the crate's name stands in the sources as a path or an import.
fn mentions(sources: &str, name: &str) -> bool {
    let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    sources.match_indices(name).any(|(at, _)| {
        let before = sources.get(..at).and_then(|s| s.chars().next_back());
        let rest = sources.get(at + name.len()..).unwrap_or_default();
        boundary(before) && (rest.starts_with("::") || rest.starts_with(';') || rest.starts_with(" as "))
    })
}

/// All Rust text of a member, comments left out.
fn sources(root: &Path, files: &[String], member: &str) -> Result<String> {
    let prefix = format!("{member}/");
    let mut all = String::new();
    for file in files
        .iter()
        .filter(|f| f.starts_with(&prefix) && f.ends_with(".rs"))
    {
        let text = tree::text(root, file)?.unwrap_or_default();
        for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
            all.push_str(line);
            all.push('\n');
        }
    }
    Ok(all)
}

fn manifest(root: &Path, path: &str) -> Result<Table> {
    let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
    text.parse().with_context(|| format!("{path} is not TOML"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_used_where_its_path_or_import_stands() {
        assert!(mentions("use foo::bar;", "foo"));
        assert!(mentions("let x = foo::y();", "foo"));
        assert!(mentions("use foo as _;", "foo"));
        assert!(!mentions("use my_foo::bar;", "foo"));
        assert!(!mentions("let foo = 1", "foo"));
    }

    #[test]
    fn a_dependency_with_its_own_version_is_an_error() {
        let mut findings = Findings::default();
        check_dependency(
            "a/Cargo.toml",
            "foo",
            &Value::String("1".into()),
            "use foo::x;",
            &mut findings,
        );
        assert_eq!(findings.errors.len(), 1, "{:?}", findings.errors);
    }
}
