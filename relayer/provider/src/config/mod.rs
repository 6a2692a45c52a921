//! One YAML file says how the daemon runs. Unknown keys are refused with a suggestion; environment
//! variables `VIRTENGINE_PROVIDER__SECTION__KEY` override single keys.

mod agree;
mod alerts;
mod check;
mod keys;
mod live;
mod load;
mod network;
mod span;
mod suggest;
mod tasks;
mod work;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use alerts::{Alertmanager, Alerts, Webhook};
pub use keys::{Key, json_schema, keys};
pub use live::{Change, Live};
pub use load::{ConfigError, ENV_PREFIX};
pub use network::{Admin, Chain, Gateway, Ops};
pub use span::Span;
pub use tasks::Tasks;
pub(crate) use work::apart;
pub use work::{Agents, Audit, Batch, Keys, Log, LogFormat, Stop, Store};

/// The whole configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which chain and contract.
    pub chain: Chain,
    /// The listener of the agents.
    pub gateway: Gateway,
    /// Health, readiness, metrics.
    pub ops: Ops,
    /// The listener of operators.
    pub admin: Admin,
    /// The log of privileged acts.
    pub audit: Audit,
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
    /// Typed tasks of nodes.
    pub tasks: Tasks,
    /// Logs.
    pub log: Log,
    /// How long a graceful stop may take.
    pub stop: Stop,
}
