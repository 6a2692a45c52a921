//! The YAML file as it stands: every key optional, unknown ones refused with the nearest known one.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ConfigError;
use super::duration::HumanDuration;
use super::suggest::nearest;

/// The whole file.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Who this node is.
    pub node: Node,
    /// Where it reports.
    pub provider_daemon: ProviderDaemon,
    /// Keys, state and what is measured.
    pub agent: Agent,
    /// The batch system.
    pub slurm: super::sources::Slurm,
    /// GPUs.
    pub gpu: super::sources::Gpu,
    /// Latency probes between agents.
    pub probe: super::probe::Probe,
    /// What the provider may order.
    pub commands: super::commands::Commands,
    /// Whose releases this node may run.
    pub update: super::update::Update,
    /// The site's own checks.
    pub health: super::health::Health,
    /// The local HTTP interface.
    pub api: super::api::Api,
    /// Whether and how this node takes tasks; absent: it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<super::tasks::Tasks>,
    /// How often each figure is measured.
    pub sampling: Sampling,
    /// Where messages go.
    pub logging: Logging,
}

/// Who this node is. The ids may be left out: the registration token carries them.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Node {
    /// Node id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Cluster id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Host name to register; default: the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Where the node reports.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderDaemon {
    /// `https://host:port` of the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Several gateways, the preferred one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Longest wait for an answer; default 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<HumanDuration>,
    /// Certificate files; `register` writes them.
    pub tls: Tls,
}

/// Certificate files.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The gateway's CA; default `<state_dir>/tls/ca.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<PathBuf>,
    /// This node's certificate; default `<state_dir>/tls/client.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<PathBuf>,
    /// Its private key; default `<state_dir>/tls/client.key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
}

/// Keys, state and what is measured.
#[derive(Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// The node's private key; default `/etc/virtengine/node-agent/keys/agent.key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_path: Option<PathBuf>,
    /// One-time registration token. A file that holds one must not be world-readable.
    #[serde(skip_serializing)]
    pub registration_token: Option<String>,
    /// File that holds the token instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_token_file: Option<PathBuf>,
    /// Where the agent keeps what must survive a restart; default `/var/lib/virtengine/node-agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
    /// Path whose file system is reported as storage; default `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_path: Option<PathBuf>,
    /// What is never offered to jobs.
    pub reserve: Reserve,
    /// What the TPM that seals the key does beside.
    pub tpm: super::tpm::Tpm,
    /// Where the kernel's trees are mounted.
    pub roots: RootPaths,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("key_path", &self.key_path)
            .field(
                "registration_token",
                &self.registration_token.as_ref().map(|_| "<redacted>"),
            )
            .field("registration_token_file", &self.registration_token_file)
            .field("state_dir", &self.state_dir)
            .finish_non_exhaustive()
    }
}

/// What is kept for the operating system.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reserve {
    /// Cores.
    pub cpu_cores: u32,
    /// Memory in GiB.
    pub memory_gb: u32,
}

/// Mount points of the kernel's trees, for containers and tests.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RootPaths {
    /// Default `/proc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proc: Option<PathBuf>,
    /// Default `/sys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sys: Option<PathBuf>,
    /// Default `/dev`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<PathBuf>,
    /// Default `/etc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etc: Option<PathBuf>,
}

/// How often each figure is measured, and how much is kept.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Heartbeats, until the gateway says another interval: 10s–2m, default 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_interval: Option<HumanDuration>,
    /// Cores, memory, storage: 10s–1m, default 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_interval: Option<HumanDuration>,
    /// Load and uptime: 10s–1m, default 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_interval: Option<HumanDuration>,
    /// CPU, memory, disk, network: 5s–30s, default 15s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_interval: Option<HumanDuration>,
    /// GPUs: 5s–30s, default 15s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_interval: Option<HumanDuration>,
    /// Round trips to peers: 1m–10m, default 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_interval: Option<HumanDuration>,
    /// Jobs and services: 30s–2m, default 1m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_interval: Option<HumanDuration>,
    /// CPU temperature: 30s–5m, default 1m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_interval: Option<HumanDuration>,
    /// Probes of one latency measurement: 1–16, default 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_probe_count: Option<u32>,
    /// Longest wait for one probe: 10ms–10s, default 1s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_probe_timeout: Option<HumanDuration>,
    /// Samples kept of each category: 1–10000, default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_buffer_size: Option<u32>,
    /// How long samples are kept: 1h–30d, default 24h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_retention: Option<HumanDuration>,
    /// Of the gateway, 1s–5m; accepted because the specification's sampling_config holds it, not used by the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_submit_interval: Option<HumanDuration>,
    /// Of the gateway, 1–1024; accepted because the specification's sampling_config holds it, not used by the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_max_size: Option<u32>,
}

/// Where messages go.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Logging {
    /// `error`, `warn`, `info`, `debug` or `trace`; default `info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// File; default: standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Size at which the file is rotated: 1–10240, default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size_mb: Option<u32>,
    /// Rotated files kept: 0–100, default 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backups: Option<u32>,
}

/// JSON Schema of the file, for editors and `config check`.
#[must_use]
pub fn json_schema() -> Value {
    let settings = SchemaSettings::default().with(|s| s.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value()
}

/// Reads the YAML text of `path`.
///
/// # Errors
/// Not YAML, unknown keys (all of them named), values of the wrong type.
pub fn parse(text: &str, path: &Path) -> Result<File, ConfigError> {
    let at = || path.display().to_string();
    let value: Value = serde_yaml_ng::from_str(text).map_err(|e| ConfigError::Syntax {
        path: at(),
        message: e.to_string(),
    })?;
    if value.is_null() {
        return Ok(File::default());
    }
    // Its errors name line and column.
    let file = serde_yaml_ng::from_str::<File>(text);
    // The schema names what is wrong. It takes time and memory, and nearly always nothing is.
    let understood = file.as_ref().ok().and_then(|f| serde_json::to_value(f).ok());
    if let Ok(file) = &file
        && understood.is_some_and(|u| agrees(&value, &u))
    {
        return Ok(file.clone());
    }
    let (mut unknown, mut wrong) = (Vec::new(), Vec::new());
    inspect(&value, &json_schema(), "", &mut unknown, &mut wrong);
    if !unknown.is_empty() {
        return Err(ConfigError::UnknownKeys {
            path: at(),
            keys: unknown.join("; "),
        });
    }
    if !wrong.is_empty() {
        return Err(ConfigError::Syntax {
            path: at(),
            message: wrong.join("; "),
        });
    }
    file.map_err(|e| ConfigError::Syntax {
        path: at(),
        message: e.to_string(),
    })
}

/// Whether each value was understood as what it is: a number that was taken for text was not. In doubt it was not.
fn agrees(value: &Value, understood: &Value) -> bool {
    match (value, understood) {
        (Value::Object(all), Value::Object(known)) => all.iter().all(|(key, inner)| match known.get(key) {
            Some(known) => agrees(inner, known),
            // The token is text, and is never shown.
            None => key == "registration_token" && inner.is_string(),
        }),
        (Value::Array(all), Value::Array(known)) => {
            all.len() == known.len() && all.iter().zip(known).all(|(inner, known)| agrees(inner, known))
        }
        (Value::Number(n), Value::Number(_)) => n.is_u64(),
        (Value::String(_), Value::String(_)) | (Value::Bool(_), Value::Bool(_)) => true,
        _ => false,
    }
}

/// Walks the file beside its schema: keys that it does not know, values of another type. The parser knows the types
/// too, but not the keys that it was at.
fn inspect(value: &Value, schema: &Value, prefix: &str, unknown: &mut Vec<String>, wrong: &mut Vec<String>) {
    let known = schema.get("properties").and_then(Value::as_object);
    let (Some(object), Some(known)) = (value.as_object(), known) else {
        if let Some(expected) = mismatch(value, schema) {
            wrong.push(format!("{prefix}: {expected}"));
        } else if let (Some(all), Some(schema)) = (value.as_array(), schema.get("items")) {
            for (n, inner) in all.iter().enumerate() {
                inspect(inner, schema, &format!("{prefix}[{n}]"), unknown, wrong);
            }
        }
        return;
    };
    for (key, inner) in object {
        let full = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        match known.get(key) {
            Some(schema) => inspect(inner, schema, &full, unknown, wrong),
            None => unknown.push(match nearest(key, known.keys().map(String::as_str)) {
                Some(candidate) => format!("{full} (did you mean {candidate}?)"),
                None => {
                    let all: Vec<&str> = known.keys().map(String::as_str).collect();
                    format!("{full} (known here: {})", all.join(", "))
                }
            }),
        }
    }
}

/// What `value` should have been, if it is something else.
fn mismatch(value: &Value, schema: &Value) -> Option<String> {
    let is = |name: &str| match schema.get("type") {
        Some(Value::String(t)) => t == name,
        Some(Value::Array(all)) => all.iter().any(|t| t == name),
        _ => false,
    };
    if value.is_null() && is("null") {
        return None;
    }
    // Only durations have a pattern here.
    if is("string") && schema.get("pattern").is_some() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return text.parse::<HumanDuration>().err().map(|e| e.to_string());
    }
    let good = (is("string") && value.is_string())
        || (is("integer") && value.is_u64())
        || (is("boolean") && value.is_boolean())
        || (is("array") && value.is_array())
        || (is("object") && (value.is_object() || value.is_null()));
    let expected = match () {
        () if good => return None,
        () if is("string") => "must be text",
        () if is("integer") => "must be a whole number, not negative",
        () if is("boolean") => "must be true or false",
        () if is("array") => "must be a list",
        () => "must be a section with keys of its own",
    };
    Some(format!("{expected}, is {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_needs_no_schema_and_what_was_mistaken_for_text_does() {
        let agree = |text: &str| {
            let value: Value = serde_yaml_ng::from_str(text).unwrap();
            serde_yaml_ng::from_str::<File>(text)
                .is_ok_and(|file| agrees(&value, &serde_json::to_value(file).unwrap()))
        };
        for right in [
            "node: {id: node-1}\nprovider_daemon: {endpoint: 'https://a:1', request_timeout: 5s}",
            "agent: {registration_token: a.b.c, reserve: {cpu_cores: 2}}\ntasks: {}",
            "provider_daemon: {endpoints: ['https://a:1', 'https://b:1']}\nslurm: {enabled: false}",
        ] {
            assert!(agree(right), "{right}");
        }
        for wrong in [
            "node: {id: 123}",
            "nod: {id: abcd}",
            "node: {id: abcd, hostname: true}",
            "agent: {registration_token: 1}",
            "provider_daemon: {endpoints: [1]}",
            "sampling: {base_interval: 30}",
        ] {
            assert!(!agree(wrong), "{wrong}");
            assert!(parse(wrong, Path::new("c")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_committed_schema_is_that_of_the_code() {
        let committed: Value = serde_json::from_str(include_str!("../../config.schema.json")).unwrap();
        assert!(
            committed == json_schema(),
            "run: cargo run --bin virtengine-node-agent -- config schema > agent/config.schema.json"
        );
    }
}
