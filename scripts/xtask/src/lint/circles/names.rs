//! Which file of a crate has what a path names.

use std::collections::BTreeMap;

use super::Takes;
use super::source::{Names, Source};

/// Imports that lead through more imports than this lead nowhere.
const MOST_STEPS: usize = 16;

/// A module: its file, and what that has.
struct Module {
    file: String,
    source: Source,
}

/// The modules of a crate, by their paths.
pub(super) struct Crate(BTreeMap<Names, Module>);

impl Crate {
    /// From the file `root` on, along the `mod` of production.
    pub(super) fn new(root: &str, read: impl Fn(&str) -> Option<Source>) -> Self {
        let mut modules = BTreeMap::new();
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut next: Vec<Names> = vec![Vec::new()];
        while let Some(path) = next.pop() {
            let files = if path.is_empty() {
                vec![root.to_owned()]
            } else {
                let stem = format!("{folder}/{}", path.join("/"));
                vec![format!("{stem}.rs"), format!("{stem}/mod.rs")]
            };
            let Some((file, source)) = files.into_iter().find_map(|f| read(&f).map(|s| (f, s))) else {
                continue;
            };
            for module in &source.modules {
                next.push([path.as_slice(), std::slice::from_ref(module)].concat());
            }
            modules.insert(path, Module { file, source });
        }
        Self(modules)
    }

    /// What each file takes from which others.
    pub(super) fn takes(&self) -> Takes<'_> {
        let mut takes = Takes::new();
        for (here, module) in &self.0 {
            let imports = module.source.imports.iter();
            let paths = imports.filter(|i| !i.face).map(|i| &i.path);
            for path in paths.chain(&module.source.paths) {
                let Some((there, name)) = self.place(here, path, 0) else {
                    continue;
                };
                let Some(other) = self.0.get(there).filter(|_| !here.starts_with(there)) else {
                    continue;
                };
                let takes = takes.entry(module.file.as_str()).or_default();
                takes.entry(other.file.as_str()).or_default().insert(name);
            }
        }
        takes
    }

    /// The module that has what the path names in the module `from`, and its name there.
    fn place(&self, from: &[String], path: &[String], steps: usize) -> Option<(&[String], String)> {
        if steps > MOST_STEPS {
            return None;
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(&[], rest, steps),
            "self" => self.walk(from, rest, steps),
            "super" => {
                let (_, parent) = from.split_last()?;
                // `super::super`
                match rest.first().map(String::as_str) {
                    Some("super") => self.place(parent, rest, steps),
                    _ => self.walk(parent, rest, steps),
                }
            }
            _ => self.walk(from, path, steps),
        }
    }

    fn walk(&self, from: &[String], path: &[String], steps: usize) -> Option<(&[String], String)> {
        let (here, module) = self.0.get_key_value(from)?;
        // A module by itself is nothing that has been taken; what it shares its name with may be.
        let (first, rest) = path.split_first()?;
        let inner = [from, std::slice::from_ref(first)].concat();
        if !rest.is_empty() && self.0.contains_key(&inner) {
            return self.walk(&inner, rest, steps);
        }
        let imports = &module.source.imports;
        if let Some(import) = imports.iter().find(|i| i.name.as_ref() == Some(first)) {
            return self.place(from, &[&import.path, rest].concat(), steps + 1);
        }
        if module.source.items.contains(first) {
            return Some((here.as_slice(), first.clone()));
        }
        imports
            .iter()
            .filter(|i| i.name.is_none())
            .find_map(|i| self.place(from, &[i.path.as_slice(), path].concat(), steps + 1))
    }
}
