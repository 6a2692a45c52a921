use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::output::{print, say};
use super::{ConfigArguments, Failure, Format, runtime};
use crate::config::HumanDuration;
use crate::register::{Outcome, RegisterError, register};
use crate::state::Registration;

/// `register`.
#[derive(Debug, Args)]
pub(super) struct Register {
    #[command(flatten)]
    config: ConfigArguments,
    /// How long to try
    #[arg(long, default_value = "10m")]
    wait: HumanDuration,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Register {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.config.load_as_owner()?;
        let key = crate::key::load(&config.key_path).map_err(|e| Failure::new(2, e))?;
        let progress = |reason: &str| eprintln!("{reason}");
        let outcome = runtime()?
            .block_on(register(&config, &key, Some(self.wait.0), progress))
            .map_err(|e| Failure::new(exit_code(&e), e))?;
        if self.output != Format::Text {
            let (new, r) = match &outcome {
                Outcome::Registered(r) => (true, r),
                Outcome::Already(r) | Outcome::Recovered(r) => (false, r),
            };
            return print(&json!({"new": new, "registration": r}), self.output);
        }
        match outcome {
            Outcome::Registered(r) => {
                say!("registered {} in cluster {}", r.node_id, r.cluster_id);
                show(&r);
                say!("certificate: {}", config.tls.client_cert.display());
                say!(
                    "next: virtengine-node-agent run --config {}",
                    self.config.config.display()
                );
            }
            Outcome::Already(r) => {
                say!("already registered: {} in cluster {}", r.node_id, r.cluster_id);
                show(&r);
            }
            Outcome::Recovered(r) => {
                say!("recovered by its key: {} in cluster {}", r.node_id, r.cluster_id);
                show(&r);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn show(r: &Registration) {
    say!("chain: {}, contract {}", r.chain_id, r.contract);
    say!("provider: {}", r.provider_address);
    say!("epoch: {}, last sequence {}", r.epoch, r.last_sequence);
}

pub(super) fn exit_code(e: &RegisterError) -> u8 {
    match e {
        RegisterError::NoToken
        | RegisterError::TokenFileMissing { .. }
        | RegisterError::NoCa { .. }
        | RegisterError::Refused(_)
        | RegisterError::OtherNode(_)
        | RegisterError::Tls(_) => 2,
        RegisterError::RefusedByGateway { .. } | RegisterError::NotRecovered { .. } => 3,
        RegisterError::TimedOut { .. } => 4,
        RegisterError::BadAnswer(_)
        | RegisterError::File(_)
        | RegisterError::Key(_)
        | RegisterError::Signing(_)
        | RegisterError::Random(_)
        | RegisterError::Csr(_)
        | RegisterError::Identity(_)
        | RegisterError::Issued(_) => 1,
    }
}
