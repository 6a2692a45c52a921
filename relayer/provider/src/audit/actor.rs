use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody may do; each role may do what those before it may.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Decides about nodes, tokens, certificates and orders.
    Operator,
    /// Decides who else may do so, and reads the audit log.
    Admin,
}

impl Role {
    /// The word in the store and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        [Self::Viewer, Self::Operator, Self::Admin]
            .into_iter()
            .find(|r| r.as_str() == s)
            .ok_or_else(|| format!("{s:?} is no role; write viewer, operator or admin"))
    }
}

/// Which way an act came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Somebody who may read and write the daemon's directory.
    CommandLine,
    /// Somebody with a credential of the admin listener.
    AdminApi,
    /// The daemon by itself.
    Daemon,
}

impl Via {
    /// The word in the store and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CommandLine => "command_line",
            Self::AdminApi => "admin_api",
            Self::Daemon => "daemon",
        }
    }
}

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Name of the user, or of the credential with its id.
    pub name: String,
    /// In which role.
    pub role: Role,
    /// Which way.
    pub via: Via,
}

impl Actor {
    /// Whoever holds the daemon's directory may do everything.
    #[must_use]
    pub fn command_line(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            role: Role::Admin,
            via: Via::CommandLine,
        }
    }

    /// The daemon by itself.
    #[must_use]
    pub fn daemon() -> Self {
        Self {
            name: "virtengine-provider".to_owned(),
            role: Role::Admin,
            via: Via::Daemon,
        }
    }
}
