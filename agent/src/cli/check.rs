use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::output::{print, say};
use super::{ConfigArguments, Failure, Format};
use crate::config::Config;
use crate::files::REGISTRATION_FILE;
use crate::register::same_node;
use crate::state::{Registration, StateDir};

/// `config check`.
#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigArguments,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.config.load()?;
        let (public, place) = crate::key::describe(&config.key_path)
            .map_err(|e| Failure::new(2, format_args!("agent.key_path: {e}")))?;
        let gateways: Vec<String> = config.endpoints.iter().map(ToString::to_string).collect();
        let node = config.node_id.as_ref().map(hpc_schema::id::NodeId::as_str);
        let level = config.logging.level.as_str().to_lowercase();
        let interval = config.sampling.base_interval.as_secs();
        let notes = notes(&config);
        match self.output {
            Format::Text => {
                say!("{}: good", self.config.config.display());
                say!("node: {}", node.unwrap_or("as the token says"));
                say!(
                    "host name: {}",
                    config.hostname.as_deref().unwrap_or("the host's own")
                );
                say!("gateways: {}", gateways.join(", "));
                if let Some(address) = config.responder.advertised {
                    say!("peers are told: {address}");
                }
                say!("heartbeats: every {interval} s until the gateway says another interval");
                say!("state: {}", config.state_dir.display());
                say!("key: {public} ({}), {place}", config.key_path.display());
                for note in &notes {
                    say!("note: {note}");
                }
                Ok(ExitCode::SUCCESS)
            }
            format => print(
                &json!({
                    "config": self.config.config, "node_id": node, "hostname": config.hostname, "gateways": gateways,
                    "heartbeat_interval_seconds": interval, "log_level": level,
                    "probe_advertise_address": config.responder.advertised,
                    "state_dir": config.state_dir, "key_path": config.key_path, "public_key": public, "key_place": place,
                    "notes": notes,
                }),
                format,
            ),
        }
    }
}

/// What is no error of the file, and keeps this node from registering, or the agent from starting.
fn notes(config: &Config) -> Vec<String> {
    // Who may not look into the state directory cannot say that it is not registered.
    let unregistered = matches!(config.state_dir.join(REGISTRATION_FILE).try_exists(), Ok(false));
    let missing = config.token_file_missing.iter().filter(|_| unregistered);
    let missing = missing
        .map(|path| {
            format!(
                "agent.registration_token_file: {} does not exist; the node is not registered, and needs it to register",
                path.display()
            )
        });
    let registered = Registration::load(&StateDir::new(&config.state_dir));
    let other = registered
        .ok()
        .flatten()
        .and_then(|r| same_node(config, &r).err());
    missing.chain(other.as_ref().map(ToString::to_string)).collect()
}
