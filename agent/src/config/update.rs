//! Section `update` of the file: whose releases this node may run.

use std::path::PathBuf;

use minisign_verify::PublicKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Where systems keep the certificates of public CAs; the first that is there.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Whose releases this node may run. Without a release key the order `update_agent` is refused.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Update {
    /// The second line of the release key's minisign file (`minisign.pub`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_key: Option<String>,
    /// PEM file of the CAs that a download server may have; default: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// Whose releases this node may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateConfig {
    /// The release key; none: no updates.
    pub release_key: Option<PublicKey>,
    /// CAs of download servers.
    pub ca_file: PathBuf,
}

pub(super) fn resolve(section: Update) -> Result<UpdateConfig, ConfigError> {
    let release_key = match section.release_key {
        None => None,
        Some(text) => Some(
            PublicKey::from_base64(text.trim()).map_err(|e| ConfigError::Value {
                key: "update.release_key",
                message: format!("must be the second line of a minisign.pub: {e}"),
            })?,
        ),
    };
    let ca_file = match section.ca_file {
        Some(path) if !path.is_absolute() => {
            return Err(ConfigError::Value {
                key: "update.ca_file",
                message: "must be an absolute path".to_owned(),
            });
        }
        Some(path) => path,
        None => BUNDLES
            .iter()
            .map(PathBuf::from)
            .find(|p| p.is_file())
            .unwrap_or_else(|| BUNDLES[0].into()),
    };
    Ok(UpdateConfig { release_key, ca_file })
}

#[cfg(test)]
mod tests {
    use crate::config::{parse, resolve};

    #[test]
    fn a_release_key_that_is_none_is_refused() {
        let read = |text: &str| {
            let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
            let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
            resolve(file).map(|c| c.update).map_err(|e| e.to_string())
        };
        assert!(read("").unwrap().release_key.is_none());
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        assert!(
            read(&format!("update: {{release_key: {key}}}"))
                .unwrap()
                .release_key
                .is_some()
        );
        for (bad, named) in [
            ("update: {release_key: abc}", "update.release_key"),
            ("update: {ca_file: ca.pem}", "update.ca_file"),
        ] {
            assert!(read(bad).unwrap_err().contains(named), "{bad}");
        }
    }
}
