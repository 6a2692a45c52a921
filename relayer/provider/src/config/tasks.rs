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
    /// How often a node that takes tasks probes its health; 0s: only when it is asked to.
    pub probe_every: Span,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            lease: Span::seconds(30),
            per_node: 4,
            history: Span::seconds(30 * 24 * 3600),
            probe_every: Span::seconds(0),
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
        if self.probe_every != Span::seconds(0) {
            let (least, most) = (Span::seconds(60), Span::seconds(30 * 24 * 3600));
            range("tasks.probe_every", self.probe_every, least, most)?;
        }
        if !(1..=64).contains(&self.per_node) {
            fail("tasks.per_node", "must be 1 to 64")?;
        }
        Ok(())
    }
}
