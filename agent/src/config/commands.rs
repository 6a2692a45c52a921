//! Section `commands` of the file: what the provider may order.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What the provider may order. Drain and resume are always carried out: the chain has decided them.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Commands {
    /// What `shutdown` ends: `agent`, `host` or `refuse`; default `agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<String>,
    /// The program that switches the host off with the argument `poweroff`; default `/usr/bin/systemctl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub systemctl: Option<PathBuf>,
    /// The socket of the helper that has the rights which the agent has not; it is asked where it exists; default
    /// `/run/virtengine-node-helper.sock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helper: Option<PathBuf>,
}

/// What the provider may order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandsConfig {
    /// What `shutdown` ends.
    pub shutdown: Shutdown,
    /// The helper's socket.
    pub helper: PathBuf,
}

/// What `shutdown` ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shutdown {
    /// The agent.
    Agent,
    /// The host, by this program.
    Host(PathBuf),
    /// Nothing.
    Refuse,
}

pub(super) fn resolve(section: Commands) -> Result<CommandsConfig, ConfigError> {
    let program = section.systemctl.unwrap_or_else(|| "/usr/bin/systemctl".into());
    if !program.is_absolute() {
        return Err(ConfigError::Value {
            key: "commands.systemctl",
            message: format!("must be an absolute path, is {}", program.display()),
        });
    }
    let helper = section.helper.unwrap_or_else(|| crate::helper::SOCKET.into());
    if !helper.is_absolute() {
        return Err(ConfigError::Value {
            key: "commands.helper",
            message: format!("must be an absolute path, is {}", helper.display()),
        });
    }
    let shutdown = match section.shutdown.as_deref().unwrap_or("agent") {
        "agent" => Shutdown::Agent,
        "host" => Shutdown::Host(program),
        "refuse" => Shutdown::Refuse,
        other => {
            return Err(ConfigError::Value {
                key: "commands.shutdown",
                message: format!("must be agent, host or refuse, is {other:?}"),
            });
        }
    };
    Ok(CommandsConfig { shutdown, helper })
}

#[cfg(test)]
mod tests {
    use super::Shutdown;
    use crate::config::{parse, resolve};

    #[test]
    fn a_shutdown_ends_the_agent_unless_the_site_says_otherwise() {
        let read = |text: &str| {
            let text = format!("provider_daemon: {{endpoint: 'https://a:1'}}\n{text}");
            let file = parse(&text, std::path::Path::new("f.yaml")).map_err(|e| e.to_string())?;
            resolve(file)
                .map(|c| c.commands.shutdown)
                .map_err(|e| e.to_string())
        };
        assert_eq!(read(""), Ok(Shutdown::Agent));
        assert_eq!(read("commands: {shutdown: refuse}"), Ok(Shutdown::Refuse));
        let host = read("commands: {shutdown: host, systemctl: /x/systemctl}");
        assert_eq!(host, Ok(Shutdown::Host("/x/systemctl".into())));
        for (bad, key) in [
            ("commands: {shutdown: everything}", "commands.shutdown"),
            ("commands: {systemctl: systemctl}", "commands.systemctl"),
            ("commands: {helper: x.sock}", "commands.helper"),
        ] {
            assert!(read(bad).unwrap_err().contains(key), "{bad}");
        }
    }
}
