use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// When reports are sent to the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// The latest that a report waits.
    pub submit_interval: Span,
    /// With this many reports waiting the planner stops waiting; a page goes whole.
    pub max_size: u32,
    /// Largest transaction in bytes.
    pub max_tx_bytes: u32,
    /// Most gas of a transaction.
    pub max_gas: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            submit_interval: Span::seconds(60),
            max_size: 50,
            max_tx_bytes: 400_000,
            max_gas: 20_000_000,
        }
    }
}

/// What agents are told in answers to heartbeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Agents {
    /// `config_updates.sampling_interval_seconds`, 10–120.
    pub sampling_interval_seconds: Option<u32>,
    /// `config_updates.metrics_retention_hours`: as long the gateway keeps full heartbeats, too, with what proves them on chain;
    /// 24 without it, none with 0.
    pub metrics_retention_hours: Option<u32>,
    /// Neighbours that each node measures its latency to.
    pub probe_neighbours: u8,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            sampling_interval_seconds: None,
            metrics_retention_hours: None,
            probe_neighbours: 3,
        }
    }
}

impl Agents {
    /// How long full heartbeats are kept with their proofs, milliseconds; 0: not at all.
    #[must_use]
    pub fn proofs_kept_ms(&self) -> u64 {
        let hours = self.metrics_retention_hours.unwrap_or(24);
        u64::from(hours).saturating_mul(3_600_000)
    }
}

/// Signing keys, by their names in the keyring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    /// Signs the identities of nodes; an owner or operator of the clusters.
    pub operator: String,
    /// Pays for transactions.
    pub relayer: String,
    /// Further keys that pay for transactions of reports: each has one under way at a time.
    pub extra_relayers: Vec<String>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            operator: "operator".into(),
            relayer: "relayer".into(),
            extra_relayers: Vec::new(),
        }
    }
}

impl Keys {
    /// The paying keys, each after the key of the configuration that names it.
    pub(crate) fn paying(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let extra = self
            .extra_relayers
            .iter()
            .map(|name| ("keys.extra_relayers", name));
        std::iter::once(("keys.relayer", &self.relayer)).chain(extra)
    }
}

/// What is to be done about an operator key that pays for reports as well.
pub(crate) fn apart(named_by: &str) -> String {
    format!(
        "drains and anchors would take the sequence numbers of its reports; make another paying key with \
         `virtengine-provider keys add NAME`, send tokens to it and name it in {named_by}"
    )
}

/// The durable store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// How long ends of reports and transactions stay on record.
    pub history: Span,
    /// PostgreSQL for several gateways, such as postgres://hpc@db.example/hpc?sslmode=verify-full, without a password.
    /// Without it the store is SQLite in the directory, for one gateway.
    pub url: Option<String>,
    /// A file with PostgreSQL's password, readable by its owner alone; a systemd credential is one.
    pub password_file: Option<PathBuf>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            history: Span::seconds(3600),
            url: None,
            password_file: None,
        }
    }
}

/// Form of the log lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs, to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,virtengine_provider=debug`.
    pub level: String,
    /// Text or JSON.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: LogFormat::Text,
        }
    }
}

/// How long a graceful stop may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// For requests under way.
    pub intake: Span,
    /// For the transaction under way; what does not end is resumed at the next start.
    pub settlement: Span,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            intake: Span::seconds(5),
            settlement: Span::seconds(15),
        }
    }
}

/// The log of privileged acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Whether its newest digest is anchored on chain, in each cluster, paid by the operator key.
    pub anchor: bool,
    /// How often, if there is something new.
    pub anchor_interval: Span,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            anchor: true,
            anchor_interval: Span::seconds(24 * 3600),
        }
    }
}
