use serde::{Deserialize, Serialize};

/// Kind of the owners of what slices' machines leave on the host.
pub(crate) const SLICE: &str = "slice";

/// Under which name effects stay on the host: `kind/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner(String);

impl Owner {
    /// `name` is a checked text of the schema.
    #[must_use]
    pub fn new(kind: &'static str, name: &str) -> Self {
        Self(format!("{kind}/{name}"))
    }

    /// What comes before the slash.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.split_once('/').map_or(self.0.as_str(), |(kind, _)| kind)
    }

    /// What comes after the slash.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
