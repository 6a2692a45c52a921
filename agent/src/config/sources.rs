//! Sections `slurm` and `gpu` of the file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::probe::gpu::GpuConfig;
use crate::probe::slurm::{SlurmConfig, ledger_path};

/// The batch system.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Slurm {
    /// Whether this node belongs to Slurm; default: if it is configured in `/etc/slurm`, slurmd or a job runs, or the agent has seen it here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Folder of scontrol, squeue and slurmd (this one in `sbin` beside it, too); default: where programs usually are, and `/opt/slurm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bin_dir: Option<PathBuf>,
    /// Slurm's configuration file; default: Slurm's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// The node's name in Slurm; default: slurmd's option `-N`, else the short host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// GPUs.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// Whether GPUs are measured; default: if the PCI bus has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// NVIDIA's management library; default `libnvidia-ml.so.1`, as the driver installs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml_library: Option<PathBuf>,
}

pub(super) fn slurm(section: Slurm, state_dir: &Path) -> Result<SlurmConfig, ConfigError> {
    if let Some(name) = &section.node_name {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // It becomes an argument of scontrol.
        if name.is_empty() || name.len() > 64 || name.starts_with('-') || !name.chars().all(good) {
            return Err(ConfigError::Value {
                key: "slurm.node_name",
                message: format!("must be a node's name of letters, digits, '-', '_' and '.', is {name:?}"),
            });
        }
    }
    Ok(SlurmConfig {
        enabled: section.enabled,
        bin_dir: absolute("slurm.bin_dir", section.bin_dir)?,
        conf: absolute("slurm.conf", section.conf)?,
        node_name: section.node_name,
        seen: Some(ledger_path(state_dir)),
    })
}

pub(super) fn gpu(section: Gpu) -> Result<GpuConfig, ConfigError> {
    let nvml_library = absolute("gpu.nvml_library", section.nvml_library)?;
    Ok(GpuConfig {
        enabled: section.enabled,
        nvml_library,
    })
}

fn absolute(key: &'static str, path: Option<PathBuf>) -> Result<Option<PathBuf>, ConfigError> {
    match path {
        Some(path) if !path.is_absolute() => {
            let message = format!("must be an absolute path, is {}", path.display());
            Err(ConfigError::Value { key, message })
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, parse, resolve};

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
        let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
        resolve(file).map_err(|e| e.to_string())
    }

    #[test]
    fn the_sections_may_be_left_out() {
        let c = read("").unwrap();
        assert_eq!((c.slurm.enabled, c.gpu.enabled), (None, None));
        let c = read("gpu: {enabled: false}\nslurm: {node_name: gpu07, conf: /x}").unwrap();
        assert_eq!(c.gpu.enabled, Some(false));
        assert_eq!(
            (c.slurm.node_name.as_deref(), c.slurm.conf),
            (Some("gpu07"), Some("/x".into()))
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (text, key) in [
            ("slurm: {node_name: '--help'}", "slurm.node_name"),
            ("slurm: {node_name: 'a b'}", "slurm.node_name"),
            ("slurm: {bin_dir: bin}", "slurm.bin_dir"),
            ("slurm: {enabled: maybe}", "slurm.enabled: must be true or false"),
            ("gpu: {nvml_library: libnvidia-ml.so}", "gpu.nvml_library"),
        ] {
            let e = read(text).unwrap_err();
            assert!(e.contains(key), "{text}: {e}");
        }
    }
}
