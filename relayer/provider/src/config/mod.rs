//! One YAML file says how the daemon runs. Unknown keys are refused with a suggestion; environment
//! variables `VIRTENGINE_PROVIDER__SECTION__KEY` override single keys.

mod alerts;
mod check;
mod load;
mod span;
mod suggest;

use std::net::SocketAddr;

use hpc_schema::id::ClusterId;
use serde::{Deserialize, Serialize};

pub use alerts::{Alertmanager, Alerts, Webhook};
pub use load::{ConfigError, ENV_PREFIX};
pub use span::Span;

/// The whole configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which chain and contract.
    pub chain: Chain,
    /// The listener of the agents.
    pub gateway: Gateway,
    /// Health, readiness, metrics.
    pub ops: Ops,
    /// When reports are sent to the chain.
    pub batch: Batch,
    /// What agents are told.
    pub agents: Agents,
    /// Signing keys, by their names in the keyring.
    pub keys: Keys,
    /// The durable store.
    pub store: Store,
    /// Who is told what is wrong.
    pub alerts: Alerts,
    /// Logs.
    pub log: Log,
    /// How long a graceful stop may take.
    pub stop: Stop,
}

/// Which chain and contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Chain {
    /// Chain id, as the node's `status` names it.
    pub id: String,
    /// Bech32 address of the registry contract.
    pub contract: String,
    /// CometBFT RPC endpoints, tried in order.
    pub rpc: Vec<String>,
    /// What a unit of gas is paid with, such as `0.025stake`; `0stake` pays nothing.
    pub gas_price: String,
    /// The most that a unit of gas is paid with: the price rises towards it, by a quarter at a time, where a node asks for
    /// more. Without it the price is fixed.
    pub gas_price_max: Option<String>,
    /// Address that pays the fees, by a fee grant to each paying key; without it each key pays for itself.
    pub fee_granter: Option<String>,
    /// How long a transaction may live before it is signed anew. Reports are good for five minutes.
    pub tx_lifetime: Span,
    /// Without a new block for so long the chain counts as halted.
    pub halt_after: Span,
    /// How often the chain's height is asked for where no websocket tells it.
    pub poll: Span,
    /// How often parameters, clusters and nodes are read.
    pub sync: Span,
    /// Deadline of one request.
    pub timeout: Span,
    /// Clusters served beside those that tokens were made for.
    pub clusters: Vec<ClusterId>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            id: String::new(),
            contract: String::new(),
            rpc: vec!["http://127.0.0.1:26657".into()],
            gas_price: "0.025stake".into(),
            gas_price_max: None,
            fee_granter: None,
            tx_lifetime: Span::seconds(90),
            halt_after: Span::seconds(30),
            poll: Span::seconds(1),
            sync: Span::seconds(5),
            timeout: Span::seconds(10),
            clusters: Vec::new(),
        }
    }
}

/// The listener of the agents: TLS 1.3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Address and port.
    pub listen: SocketAddr,
    /// URL that agents reach the gateway under; travels in tokens.
    pub endpoint: Option<String>,
    /// Host names and addresses in the server certificate.
    pub names: Vec<String>,
    /// Open connections of nodes. Beyond, the oldest of the node that has the most goes.
    pub max_connections: usize,
    /// Open connections of one node; beyond, its oldest goes.
    pub max_connections_per_node: usize,
    /// Open connections that have not shown a certificate. Beyond, the oldest of the address that has the most goes.
    pub max_anonymous: usize,
    /// The same of one address (of IPv6 a /64); beyond, its oldest goes.
    pub max_anonymous_per_address: usize,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// From the first byte of a request to the last byte of its body, and then again to the answer.
    pub request_timeout: Span,
    /// TLS handshake, and the first request of a connection without certificate.
    pub handshake_timeout: Span,
    /// From the first byte of a request to the end of its head.
    pub header_timeout: Span,
    /// Connections of nodes are closed after this long without a request.
    pub idle_timeout: Span,
    /// Requests a node may make within a minute.
    pub requests_per_minute: u32,
    /// How long a node's certificate counts.
    pub certificate_lifetime: Span,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            endpoint: None,
            names: vec!["localhost".into(), "127.0.0.1".into()],
            max_connections: 12_000,
            max_connections_per_node: 4,
            max_anonymous: 2_048,
            max_anonymous_per_address: 256,
            max_body_bytes: 65_536,
            request_timeout: Span::seconds(10),
            handshake_timeout: Span::seconds(10),
            header_timeout: Span::seconds(5),
            idle_timeout: Span::seconds(180),
            requests_per_minute: 30,
            certificate_lifetime: Span::seconds(24 * 3600),
        }
    }
}

/// Health, readiness, metrics: plain HTTP, for this machine only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ops {
    /// Address and port.
    pub listen: SocketAddr,
}

impl Default for Ops {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
        }
    }
}

/// When reports are sent to the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agents {
    /// `config_updates.sampling_interval_seconds`, 10–120.
    pub sampling_interval_seconds: Option<u32>,
    /// `config_updates.metrics_retention_hours`.
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

/// Signing keys, by their names in the keyring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// The durable store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// How long ends of reports and transactions stay on record.
    pub history: Span,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            history: Span::seconds(3600),
        }
    }
}

/// Form of the log lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs, to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
