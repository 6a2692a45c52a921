//! Rules of the tree that no compiler checks.

mod circles;
mod length;
mod links;
mod manifests;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::tree;

/// What the rules found: errors fail the run, warnings are printed.
#[derive(Default)]
pub(crate) struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Findings {
    fn error(&mut self, text: String) {
        self.errors.push(text);
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
}

/// Runs every rule over every file.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = tree::files(root)?;
    let mut findings = Findings::default();
    manifests::check(root, &files, &mut findings)?;
    let mut sources = BTreeMap::new();
    for file in &files {
        let Some(text) = tree::text(root, file)? else {
            continue;
        };
        length::check(file, &text, &mut findings);
        words::check(file, &text, &mut findings);
        links::check(root, file, &text, &mut findings);
        if file.ends_with(".rs") {
            sources.insert(file.clone(), text);
        }
    }
    circles::check(&sources, &mut findings);
    for warning in &findings.warnings {
        eprintln!("warning: {warning}");
    }
    for error in &findings.errors {
        eprintln!("error: {error}");
    }
    if !findings.errors.is_empty() {
        bail!("{} findings in {} files", findings.errors.len(), files.len());
    }
    println!(
        "{} files: no findings, {} warnings",
        files.len(),
        findings.warnings.len()
    );
    Ok(())
}
