//! What is committed under `schema/json`, `schema/vectors` and `schema/tasks` is what the code makes and judges.
//! After a deliberate change, write the files again: `BLESS=1 cargo test -p hpc-schema --test golden`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hpc_schema::{schemas, task, vectors};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn compare(folder_name: &str, generated: Vec<(&'static str, Value)>) {
    let folder = folder(folder_name);
    let names: BTreeSet<String> = generated.iter().map(|(name, _)| (*name).to_owned()).collect();
    for (name, value) in generated {
        let (path, text) = (folder.join(name), format!("{value:#}\n"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "{} differs from the code; BLESS=1 cargo test -p hpc-schema --test golden writes it again",
            path.display()
        );
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Tables in other forms have tests of their own.
        assert!(
            !name.ends_with(".json") || names.contains(&name),
            "{folder_name}/{name} is not made by the code; remove it"
        );
    }
}

#[test]
fn committed_json_schemas_are_those_of_the_types() {
    compare("json", schemas::schemas());
}

#[test]
fn the_committed_catalogue_of_tasks_is_that_of_the_code() {
    let catalogue = serde_json::to_value(task::catalogue()).unwrap();
    compare("tasks", vec![("catalog.json", catalogue)]);
}

#[test]
fn committed_vectors_are_those_of_the_code() {
    compare("vectors", vectors::vectors().unwrap());
}

#[test]
fn every_case_of_the_committed_vectors_holds() {
    for (name, _) in vectors::vectors().unwrap() {
        let text = std::fs::read_to_string(folder("vectors").join(name)).unwrap();
        let content: Value = serde_json::from_str(&text).unwrap();
        let held = vectors::check_vectors(name, &content).unwrap();
        assert!(held > 1, "{name}");
    }
}
