//! `keys add|import|show|list|delete`.

use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use hpc_chain::keys::{Backend, KeyInfo, Keyring, LocalKey, Mnemonic, read_private, write_private};
use serde::Serialize;
use zeroize::Zeroizing;

use super::passphrase;
use crate::args::{KeysArgs, KeysCommand};
use crate::confirm::confirm;
use crate::context::{self, Context};
use crate::error::{Exit, Failure};
use crate::output::{Align, Lines, Table, Text, note};

/// 24 words fit many times.
const MAX_WORDS: u64 = 4096;

/// A key as it is shown.
#[derive(Debug, Serialize)]
struct KeyOut {
    name: String,
    address: String,
    /// Base64 of the compressed secp256k1 key.
    public_key: String,
    backend: Backend,
}

#[derive(Debug, Serialize)]
struct KeyList {
    keys: Vec<KeyOut>,
}

impl KeyOut {
    fn new(info: KeyInfo, prefix: &str) -> Result<Self, Failure> {
        let address = info.address(prefix)?;
        let KeyInfo {
            name,
            backend,
            public_key,
        } = info;
        Ok(Self {
            name,
            address,
            public_key,
            backend,
        })
    }
}

impl Text for KeyOut {
    fn text(&self) -> String {
        let Self {
            name,
            address,
            public_key,
            backend,
        } = self;
        let mut lines = Lines::new();
        lines.line("name", name).line("address", address);
        lines.line("public_key", public_key).line("backend", backend);
        lines.finish()
    }
}

impl Text for KeyList {
    fn text(&self) -> String {
        let mut table = Table::new(["NAME", "ADDRESS", "BACKEND"].map(|h| (h, Align::Left)));
        for key in &self.keys {
            table.row([key.name.clone(), key.address.clone(), key.backend.to_string()]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        self.keys
            .is_empty()
            .then(|| "no keys; virtengine keys add NAME makes one".to_owned())
    }
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &KeysArgs) -> Result<(), Failure> {
    let prefix = context::prefix(context, args.prefix.as_deref())?;
    let keyring = context.keyring(&args.keyring)?;
    // Whatever is asked for is not in its way.
    if let Err(e) = keyring.sweep() {
        note(&format!(
            "what a call that was killed has left in the keyring stays: {e}"
        ));
    }
    let show = |info: KeyInfo| context.printer.print(&KeyOut::new(info, &prefix)?);
    match &args.command {
        KeysCommand::Add {
            name,
            mnemonic_file,
            hd_path,
        } => {
            let mnemonic = Mnemonic::generate()?;
            let key = LocalKey::from_mnemonic(&mnemonic, hd_path)?;
            free(&keyring, name)?;
            // The words first: a key whose words were never seen must not come to hold money.
            if let Some(path) = mnemonic_file {
                let line = Zeroizing::new(format!("{}\n", mnemonic.words().as_str()));
                write_private(path, line.as_bytes(), false)?;
            }
            let info = store(&keyring, args.keyring.keyring_backend, name, &key)?;
            show(info)?;
            match mnemonic_file {
                Some(path) => note(&format!(
                    "the words are in {}; keep them apart from this machine",
                    path.display()
                )),
                None => note(&format!(
                    "\nThese words are the key. They are shown this once: write them down.\n\n{}\n",
                    mnemonic.words().as_str()
                )),
            }
            Ok(())
        }
        KeysCommand::Import {
            name,
            mnemonic_file,
            hd_path,
        } => {
            free(&keyring, name)?;
            let words = words(mnemonic_file.as_deref())?;
            let key = LocalKey::from_mnemonic(&Mnemonic::parse(&words)?, hd_path)?;
            show(store(&keyring, args.keyring.keyring_backend, name, &key)?)
        }
        KeysCommand::Show { name, address: true } => context
            .printer
            .raw(&format!("{}\n", keyring.info(name)?.address(&prefix)?)),
        KeysCommand::Show { name, address: false } => show(keyring.info(name)?),
        KeysCommand::List => {
            let keys = keyring.list()?.into_iter().map(|info| KeyOut::new(info, &prefix));
            context.printer.print(&KeyList {
                keys: keys.collect::<Result<_, _>>()?,
            })
        }
        KeysCommand::Delete { name, yes } => {
            let address = keyring.info(name)?.address(&prefix)?;
            note(&format!(
                "key {name}, {address}: without its words it is lost for ever"
            ));
            confirm(*yes, "delete it?")?;
            show(keyring.remove(name)?)
        }
    }
}

/// Refuses a name that is taken before anything is made or asked for.
fn free(keyring: &Keyring, name: &str) -> Result<(), Failure> {
    match keyring.info(name) {
        Ok(_) => Err(hpc_chain::keys::KeyringError::Exists(name.to_owned()).into()),
        Err(hpc_chain::keys::KeyringError::NotFound { .. }) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn store(keyring: &Keyring, backend: Backend, name: &str, key: &LocalKey) -> Result<KeyInfo, Failure> {
    if backend == Backend::Test {
        note("WARNING: backend test stores the key in the clear; use it for test chains only");
    }
    Ok(keyring.add(name, key, || passphrase::new(name))?)
}

/// The words from a file of mode 0600, or from standard input.
fn words(path: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
    let mut bytes = Zeroizing::new(Vec::new());
    match path {
        Some(path) => *bytes = read_private(path, MAX_WORDS)?,
        None => {
            if std::io::stdin().is_terminal() {
                let line = rpassword::prompt_password("words (not shown): ");
                return line
                    .map(Zeroizing::new)
                    .map_err(|e| Failure::new(Exit::Failed, "file_error", e.to_string()));
            }
            let read = std::io::stdin().lock().take(MAX_WORDS).read_to_end(&mut bytes);
            read.map_err(|e| Failure::new(Exit::Failed, "file_error", format!("standard input: {e}")))?;
        }
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(hpc_chain::keys::KeyError::Mnemonic.into()),
    }
}
