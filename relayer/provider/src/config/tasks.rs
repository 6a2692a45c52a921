use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::{fail, range};
use super::{ConfigError, Span};

/// Typed tasks of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tasks {
    /// Without word of the node for so long a task is delivered again.
    pub lease: Span,
    /// Tasks that one node may have under way.
    pub per_node: u32,
    /// How long ended tasks stay on record.
    pub history: Span,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            lease: Span::seconds(30),
            per_node: 4,
            history: Span::seconds(30 * 24 * 3600),
        }
    }
}

impl Tasks {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        range("tasks.lease", self.lease, Span::seconds(3), Span::seconds(3600))?;
        range(
            "tasks.history",
            self.history,
            Span::seconds(3600),
            Span::seconds(10 * 365 * 24 * 3600),
        )?;
        if !(1..=64).contains(&self.per_node) {
            fail("tasks.per_node", "must be 1 to 64")?;
        }
        Ok(())
    }
}
