use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::output::{print, say};
use super::{ConfigArguments, Failure, Format};

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
        match self.output {
            Format::Text => {
                say!("{}: good", self.config.config.display());
                say!("gateways: {}", gateways.join(", "));
                say!("state: {}", config.state_dir.display());
                say!("key: {public} ({}), {place}", config.key_path.display());
                Ok(ExitCode::SUCCESS)
            }
            format => print(
                &json!({
                    "config": self.config.config, "gateways": gateways, "state_dir": config.state_dir,
                    "key_path": config.key_path, "public_key": public, "key_place": place,
                }),
                format,
            ),
        }
    }
}
