use std::fmt::Display;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use hpc_chain::keys::{Backend, KeyInfo, Keyring, KeyringError, Resealed};
use hpc_schema::code::Code;
use serde::Serialize;
use serde_json::json;

use super::args::KeysCommand;
use super::init::add_key;
use super::output::{Output, line};
use super::who;
use crate::admin::{Act, Admin, AdminError};
use crate::daemon::{next_passphrase, passphrase, prefix_of};
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

pub(super) async fn run(desk: &Admin, command: KeysCommand, out: Output) -> anyhow::Result<()> {
    let (home, config) = (&desk.home, &desk.config);
    // Whatever is asked for is not in its way.
    if let Err(e) = Keyring::open(&home.keyring(), Backend::Test).and_then(|keyring| keyring.sweep()) {
        eprintln!("what a call that was killed has left in the keyring stays: {e}");
    }
    let configured = prefix_of(&config.chain.contract).ok();
    let find = |name: &str, prefix: String| {
        let info = Keyring::open(&home.keyring(), Backend::Test)?.info(name)?;
        Row::new(info, &configured.clone().unwrap_or(prefix))
    };
    let absent = |e: KeyringError| match e {
        KeyringError::NotFound { .. } => anyhow!("{e}; those that are there: virtengine-provider keys list"),
        other => other.into(),
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
            let row = find(&name, prefix).map_err(absent)?;
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
            place.check()?;
            let present = Keyring::open(&home.keyring(), Backend::Test)?;
            // What is added may be the very key that the configuration names.
            let beside = match present.info(&config.keys.relayer) {
                Err(KeyringError::NotFound { .. }) => present.info(&config.keys.operator),
                found => found,
            };
            // Beside one that is not in the keyring itself another is sealed.
            let backend = match beside.map_err(absent)?.backend {
                Backend::Pkcs11 | Backend::Credential => Backend::File,
                other => other,
            };
            let keyring = Keyring::open(&home.keyring(), backend)?;
            let added: anyhow::Result<KeyInfo> = match (place.hsm()?, place.credential()) {
                (Some(_), _) if import.is_some() => {
                    bail!("--import: an HSM makes its own key, or has it already (--pkcs11-id)")
                }
                (_, Some(_)) if import.is_some() => {
                    bail!("--import: the key is what the credential holds (--key-credential)")
                }
                (Some((options, id)), _) => keyring
                    .add_hsm(&name, &options, id.as_deref())
                    .map_err(Into::into),
                (None, Some(credential)) => keyring.add_credential(&name, credential).map_err(Into::into),
                (None, None) => add_key(&keyring, &name, import.as_deref()),
            };
            added.map_err(with_code)?;
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
            let row = find(&name, prefix).map_err(absent)?;
            out.done(&row.address, &json!({ "name": row.name, "address": row.address }))
        }
        KeysCommand::RotateTask { cluster_id } => {
            let rotated = desk.rotate_task_key(&who(), &cluster_id).await?;
            if rotated.resumed {
                eprintln!("a rotation that had been broken off is done now; run this again for another key");
            }
            out.done(&rotated.new_key.to_base64(), &rotated)
        }
        KeysCommand::Passphrase { new, new_credential } => {
            let resealed = reseal(desk, new.as_deref(), new_credential.as_deref());
            change_passphrase(desk, resealed, out).await
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

/// The keyring's keys under the new passphrase, not in their places yet.
fn reseal(desk: &Admin, new: Option<&Path>, credential: Option<&str>) -> anyhow::Result<Resealed> {
    let next = next_passphrase(new, credential)?;
    let keyring = Keyring::open(&desk.home.keyring(), Backend::File)?;
    let resealed = keyring.reseal(&passphrase(&desk.config.keys.relayer)?, &next);
    resealed.map_err(|e| with_code(e.into()))
}

/// Who is told to come again is told so by a code.
fn with_code(e: anyhow::Error) -> anyhow::Error {
    match e.downcast_ref() {
        Some(KeyringError::Busy(dir)) => {
            let dir = dir.display();
            let what = format!("another call is changing {dir}; run this again when that has ended");
            AdminError::field(Code::InvalidState, "keyring", what).into()
        }
        _ => e,
    }
}

/// Puts them there. The audit log says which before the first file is another, and how it ended.
async fn change_passphrase(
    desk: &Admin,
    resealed: anyhow::Result<Resealed>,
    out: Output,
) -> anyhow::Result<()> {
    let note = async |result, detail| {
        let what = ("keys.passphrase", "keyring".to_owned());
        Act::note(&desk.store, &who(), what, result, detail).await
    };
    let failed = |e: &dyn Display| json!({ "message": e.to_string() });
    let resealed = match resealed {
        Ok(resealed) => resealed,
        Err(e) => {
            // What went wrong is said whether or not the log takes it.
            note("failed", failed(&e)).await.ok();
            return Err(e);
        }
    };
    let keys: Vec<String> = resealed.names().map(str::to_owned).collect();
    // More than none after one that was broken off.
    let before = resealed.done().to_vec();
    let detail = json!({ "keys": keys, "sealed_before": before });
    note("begun", detail.clone()).await?;
    if let Err(e) = resealed.put() {
        note("failed", failed(&e)).await.ok();
        let half = "some keys may have the new passphrase, others the former one: run this again";
        return Err(e).context(half);
    }
    note("done", detail.clone()).await?;
    let put = "put its file in the former one's place before the next start";
    let text = match (keys.len(), before.len()) {
        (0, 0) => "no key of the keyring is protected by a passphrase".to_owned(),
        (0, n) => format!("all {n} keys are sealed with the new passphrase already; {put}"),
        (n, m) => format!(
            "{} keys are sealed with the new passphrase; {put}",
            n.saturating_add(m)
        ),
    };
    out.done(&text, &detail)
}
