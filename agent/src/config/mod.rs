//! Configuration: flags over environment over file, checked as a whole before anything starts.

mod api;
mod bounds;
mod check;
mod commands;
mod duration;
mod file;
mod health;
mod load;
mod probe;
mod sources;
mod suggest;
mod tasks;
mod tpm;
mod update;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hpc_schema::id::{ClusterId, NodeId};

pub use api::{ApiConfig, ApiTlsConfig, DEFAULT_API};
pub use check::resolve;
pub use commands::{CommandsConfig, Shutdown};
pub use duration::{DurationError, HumanDuration};
pub use file::{File, Reserve, json_schema, parse};
pub use load::{Overrides, load, read_token_file};
pub use probe::ResponderConfig;
pub use tasks::TasksConfig;
pub use update::UpdateConfig;

pub use crate::state::DEFAULT_STATE_DIR;

use crate::accel::Accel;
use crate::health::Policy;
use crate::probe::Roots;
use crate::probe::checks::ChecksConfig;
use crate::probe::gpu::GpuConfig;
use crate::probe::slurm::SlurmConfig;
use crate::sample::{Category, Sources, recommended};

/// Where the specification puts the file.
pub const DEFAULT_PATH: &str = "/etc/virtengine/node-agent/config.yaml";
/// Where the specification puts the key.
pub const DEFAULT_KEY_PATH: &str = "/etc/virtengine/node-agent/keys/agent.key";

/// Everything the agent needs, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from, if there was one.
    pub path: Option<PathBuf>,
    /// Node id, unless the token carries it.
    pub node_id: Option<NodeId>,
    /// Cluster id, unless the token carries it.
    pub cluster_id: Option<ClusterId>,
    /// Host name to register.
    pub hostname: Option<String>,
    /// Gateways, the preferred one first; at least one.
    pub endpoints: Vec<Endpoint>,
    /// Longest wait for an answer.
    pub request_timeout: Duration,
    /// Certificate files.
    pub tls: TlsPaths,
    /// The node's private key.
    pub key_path: PathBuf,
    /// One-time registration token.
    pub token: Option<Token>,
    /// The file of `agent.registration_token_file`, where the token was looked for in vain: there is no such file.
    pub token_file_missing: Option<PathBuf>,
    /// What must survive a restart.
    pub state_dir: PathBuf,
    /// Path whose file system is reported as storage.
    pub storage_path: PathBuf,
    /// What is never offered to jobs.
    pub reserve: Reserve,
    /// The PCRs that a registration quotes, rising; none: it has no quote.
    pub quote: Option<Vec<u8>>,
    /// Mount points of the kernel's trees.
    pub roots: Roots,
    /// The batch system.
    pub slurm: SlurmConfig,
    /// GPUs.
    pub gpu: GpuConfig,
    /// Where this agent answers latency probes.
    pub responder: ResponderConfig,
    /// What the provider may order.
    pub commands: CommandsConfig,
    /// Whose releases may run.
    pub update: UpdateConfig,
    /// The site's own checks.
    pub checks: ChecksConfig,
    /// Which findings take the node out of service.
    pub policy: Policy,
    /// The local HTTP interface.
    pub api: ApiConfig,
    /// The accelerator of virtual machines that the administrator wants; none: the best that works.
    pub accel: Option<Accel>,
    /// Whether and how it takes tasks.
    pub tasks: Option<TasksConfig>,
    /// How often each figure is measured.
    pub sampling: SamplingConfig,
    /// Where messages go.
    pub logging: LoggingConfig,
}

impl Config {
    /// Where and how figures are read.
    #[must_use]
    pub fn sources(&self) -> Sources {
        Sources {
            roots: self.roots.clone(),
            storage_path: self.storage_path.clone(),
            memory_dir: self.state_dir.clone(),
            keeps: true,
            slurm: self.slurm.clone(),
            gpu: self.gpu.clone(),
            checks: self.checks.clone(),
        }
    }
}

/// Certificate files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPaths {
    /// The gateway's CA.
    pub ca_cert: PathBuf,
    /// This node's certificate.
    pub client_cert: PathBuf,
    /// Its private key.
    pub client_key: PathBuf,
}

/// A gateway: `https://host:port`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Name or address, as the certificate must show it.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "https://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "https://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The registration token: a bearer secret until it is used.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps a token.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The compact JWS.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Intervals and bounds of measuring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingConfig {
    /// Heartbeats, until the gateway says another interval.
    pub base_interval: Duration,
    /// One interval a category, in the order of [`Category::ALL`].
    intervals: [Duration; Category::ALL.len()],
    /// Probes of one latency measurement.
    pub latency_probe_count: u32,
    /// Longest wait for one probe.
    pub latency_probe_timeout: Duration,
    /// Samples kept of each category.
    pub metrics_buffer_size: u32,
    /// How long samples are kept.
    pub metrics_retention: Duration,
}

impl SamplingConfig {
    /// How often figures of `category` are measured.
    #[must_use]
    pub fn interval(&self, category: Category) -> Duration {
        Category::ALL
            .iter()
            .zip(&self.intervals)
            .find(|(c, _)| **c == category)
            .map_or(recommended(category), |(_, interval)| *interval)
    }

    /// Sets the interval of `category`.
    pub fn set_interval(&mut self, category: Category, interval: Duration) {
        for (c, slot) in Category::ALL.iter().zip(&mut self.intervals) {
            if *c == category {
                *slot = interval;
            }
        }
    }
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            base_interval: Duration::from_secs(30),
            intervals: Category::ALL.map(recommended),
            latency_probe_count: 3,
            latency_probe_timeout: Duration::from_secs(1),
            metrics_buffer_size: 100,
            metrics_retention: Duration::from_secs(24 * 3600),
        }
    }
}

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingConfig {
    /// Least important level that is written.
    pub level: tracing::Level,
    /// File; none: standard error.
    pub file: Option<PathBuf>,
    /// Size at which the file is rotated, in bytes.
    pub max_size: u64,
    /// Rotated files kept.
    pub max_backups: u32,
}

impl Default for LoggingConfig {
    fn default() -> Self {
        Self {
            level: tracing::Level::INFO,
            file: None,
            max_size: 100 << 20,
            max_backups: 5,
        }
    }
}

/// Why there is no usable configuration. Every message names the key and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// IO.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// There is no such file.
    #[error("{path} does not exist; write it (docs/agent.md shows one), or name another with --config")]
    Missing {
        /// The file.
        path: String,
    },
    /// Not YAML, or a value of the wrong type.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: String,
        /// The parser's words, with line and column.
        message: String,
    },
    /// Keys that nothing reads.
    #[error("{path}: unknown keys: {keys}")]
    UnknownKeys {
        /// The file.
        path: String,
        /// Each with the nearest known key.
        keys: String,
    },
    /// A value that cannot be.
    #[error("{key}: {message}")]
    Value {
        /// Its path in the file.
        key: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// Everybody could read the token.
    #[error("{key}: {path} holds a token and is world-readable (mode {mode:o}); chmod 640 {path}")]
    TokenExposed {
        /// What names the file, or the key in it.
        key: &'static str,
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A file that may hold a token cannot be read.
    #[error("{key}: {source}; name the right file, and let the agent's user enter its folders and read it")]
    TokenUnreadable {
        /// What names the file, or the key in it.
        key: &'static str,
        /// Why.
        source: crate::files::FileError,
    },
}
