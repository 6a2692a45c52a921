use hpc_chain::keys::{Backend, KeyInfo, Keyring, KeyringError};
use serde::Serialize;

use super::args::KeysCommand;
use super::init::add_key;
use super::output;
use crate::config::Config;
use crate::daemon::prefix_of;
use crate::home::Home;
use crate::registry::TaskKeys;

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    address: String,
    public_key: String,
    backend: String,
}

impl Row {
    fn new(key: KeyInfo, prefix: &str) -> Result<Self, KeyringError> {
        let address = key.address(prefix)?;
        Ok(Self {
            name: key.name,
            address,
            public_key: key.public_key,
            backend: key.backend.to_string(),
        })
    }
}

pub(super) fn run(home: &Home, config: &Config, command: KeysCommand) -> anyhow::Result<()> {
    let configured = prefix_of(&config.chain.contract).ok();
    let find = |name: &str, prefix: String| {
        let info = Keyring::open(&home.keyring(), Backend::Test)?.info(name)?;
        Row::new(info, &configured.clone().unwrap_or(prefix))
    };
    match command {
        KeysCommand::List(out) => {
            let prefix = configured.unwrap_or_else(|| "wasm".into());
            let keys = Keyring::open(&home.keyring(), Backend::Test)?.list()?;
            let rows = keys
                .into_iter()
                .map(|k| Row::new(k, &prefix))
                .collect::<Result<Vec<_>, _>>()?;
            output::list(&rows, out.output, &["NAME", "ADDRESS", "BACKEND"], |r| {
                vec![r.name.clone(), r.address.clone(), r.backend.clone()]
            })
        }
        KeysCommand::Show {
            name,
            address,
            prefix,
            out,
        } => {
            let row = find(&name, prefix)?;
            if address {
                output::line(&row.address)
            } else {
                output::value(&row, out.output)
            }
        }
        KeysCommand::Add {
            name,
            import,
            prefix,
            out,
        } => {
            let relayer = Keyring::open(&home.keyring(), Backend::Test)?.info(&config.keys.relayer)?;
            let keyring = Keyring::open(&home.keyring(), relayer.backend)?;
            add_key(&keyring, &name, import.as_deref())?;
            output::value(&find(&name, prefix)?, out.output)
        }
        KeysCommand::Address { name, prefix } => output::line(&find(&name, prefix)?.address),
        KeysCommand::Task { cluster_id } => {
            let key = TaskKeys::new(home.clone()).get_or_create(&cluster_id)?;
            output::line(&key.public().to_base64())
        }
    }
}
