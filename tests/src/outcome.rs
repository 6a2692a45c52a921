//! What a scenario ended with, written down so that the two chains can be compared (`cargo xtask outcomes`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::chain::Kind;
use crate::program;

/// Collects the named outcomes of one scenario; only what must be the same on every chain goes in (codes, states,
/// counts), nothing that time decides.
#[derive(Debug)]
pub struct Outcome {
    path: PathBuf,
    values: BTreeMap<String, Value>,
}

impl Outcome {
    /// Outcomes of `scenario` on a chain of this kind.
    #[must_use]
    pub fn new(chain: Kind, scenario: &str) -> Self {
        let folder = program::root().join("target/e2e/outcomes").join(chain.name());
        Self {
            path: folder.join(format!("{scenario}.json")),
            values: BTreeMap::new(),
        }
    }

    /// Adds one outcome.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(self) -> Result<()> {
        let folder = self.path.parent().context("an outcome has no folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(&self.path, serde_json::to_vec_pretty(&self.values)?)?;
        Ok(())
    }
}
