use anyhow::{Context as _, bail};
use hpc_chain::keys::{Backend, KeyInfo, Keyring, KeyringError, Passphrase, read_private};
use serde::Serialize;
use serde_json::json;

use super::args::KeysCommand;
use super::init::add_key;
use super::output::{Output, line};
use super::who;
use crate::admin::{Act, Admin};
use crate::daemon::{passphrase, prefix_of};
use crate::registry::TaskKeys;

/// The longest passphrase, in bytes.
const MAX_PASSPHRASE: u64 = 4096;

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

pub(super) async fn run(desk: &Admin, command: KeysCommand, out: Output) -> anyhow::Result<()> {
    let (home, config) = (&desk.home, &desk.config);
    let configured = prefix_of(&config.chain.contract).ok();
    let find = |name: &str, prefix: String| {
        let info = Keyring::open(&home.keyring(), Backend::Test)?.info(name)?;
        Row::new(info, &configured.clone().unwrap_or(prefix))
    };
    match command {
        KeysCommand::List => {
            let prefix = configured.unwrap_or_else(|| "wasm".into());
            let keys = Keyring::open(&home.keyring(), Backend::Test)?.list()?;
            let rows = keys
                .into_iter()
                .map(|k| Row::new(k, &prefix))
                .collect::<Result<Vec<_>, _>>()?;
            out.list(&rows, &["NAME", "ADDRESS", "BACKEND"], |r| {
                vec![r.name.clone(), r.address.clone(), r.backend.clone()]
            })
        }
        KeysCommand::Show {
            name,
            address,
            prefix,
        } => {
            let row = find(&name, prefix)?;
            if address {
                line(&row.address)
            } else {
                out.value(&row)
            }
        }
        KeysCommand::Add {
            name,
            import,
            place,
            prefix,
        } => {
            let relayer = Keyring::open(&home.keyring(), Backend::Test)?.info(&config.keys.relayer)?;
            // Beside one in an HSM another is sealed.
            let backend = match relayer.backend {
                Backend::Pkcs11 => Backend::File,
                other => other,
            };
            let keyring = Keyring::open(&home.keyring(), backend)?;
            match place.hsm()? {
                Some(_) if import.is_some() => {
                    bail!("--import: an HSM makes its own key, or has it already (--pkcs11-id)")
                }
                Some((options, id)) => keyring.add_hsm(&name, &options, id.as_deref())?,
                None => add_key(&keyring, &name, import.as_deref())?,
            };
            let row = find(&name, prefix)?;
            let detail =
                json!({ "address": row.address, "imported": import.is_some(), "backend": row.backend });
            Act::note(
                &desk.store,
                &who(),
                ("keys.add", format!("key {name}")),
                "done",
                detail,
            )
            .await?;
            out.value(&row)
        }
        KeysCommand::Address { name, prefix } => {
            let row = find(&name, prefix)?;
            out.done(&row.address, &json!({ "name": row.name, "address": row.address }))
        }
        KeysCommand::RotateTask { cluster_id } => {
            let rotated = desk.rotate_task_key(&who(), &cluster_id).await?;
            if rotated.resumed {
                eprintln!("a rotation that had been broken off is done now; run this again for another key");
            }
            out.done(&rotated.new_key.to_base64(), &rotated)
        }
        KeysCommand::Passphrase { new } => {
            let text = String::from_utf8(read_private(&new, MAX_PASSPHRASE)?);
            let next = Passphrase::new(text.context("--new: the passphrase is no text")?);
            let keyring = Keyring::open(&home.keyring(), Backend::File)?;
            let sealed = keyring.reseal(&passphrase(&config.keys.relayer)?, &next)?;
            let what = ("keys.passphrase", "keyring".to_owned());
            Act::note(&desk.store, &who(), what, "done", json!({ "keys": sealed })).await?;
            let text = match sealed.len() {
                0 => "no key was protected by the former passphrase".to_owned(),
                n => format!(
                    "{n} keys are sealed with the new passphrase; put its file in the former one's place before the next start"
                ),
            };
            out.done(&text, &json!({ "keys": sealed }))
        }
        KeysCommand::RotateToken { overlap } => {
            let rotated = desk.rotate_token_key(&who(), overlap.as_secs()).await?;
            if rotated.resumed {
                eprintln!("a rotation that had been broken off is done now; run this again for another key");
            }
            out.done(&rotated.new_key.to_base64(), &rotated)
        }
        KeysCommand::Task { cluster_id } => {
            let made = !home.task_key(&cluster_id).exists();
            let key = TaskKeys::new(home.clone())
                .get_or_create(&cluster_id)?
                .public()
                .to_base64();
            if made {
                let what = ("keys.task", format!("task key of {cluster_id}"));
                Act::note(&desk.store, &who(), what, "done", json!({ "public_key": key })).await?;
            }
            out.done(&key, &json!({ "cluster_id": cluster_id, "public_key": key }))
        }
    }
}
