use std::fs;
use std::path::Path;

use anyhow::Context as _;
use hpc_chain::keys::{
    Backend, DEFAULT_PATH, KeyInfo, Keyring, LocalKey, Mnemonic, PASSPHRASE_FILE_ENV, read_private,
};
use serde::Serialize;
use serde_json::json;

use super::args::InitArgs;
use super::output::Output;
use super::who;
use crate::admin::{Act, AdminError};
use crate::clock;
use crate::config::Config;
use crate::daemon::StartError;
use crate::home::{self, Home};
use crate::identity::{Ca, Seed, server_names};
use crate::store::Store;

/// What was made.
#[derive(Debug, Serialize)]
struct Made {
    home: String,
    ca_sha256: String,
    operator_address: String,
    relayer_address: String,
    keyring_backend: String,
}

/// Makes everything aside and moves it into place, the configuration last: where it lies, all is there.
pub(super) async fn run(home: &Home, args: &InitArgs, out: Output) -> anyhow::Result<()> {
    home::make_home_dir(home.dir()).with_context(|| home.dir().display().to_string())?;
    refuse_used(home)?;
    let staging = home.dir().join(format!(".init-{}", std::process::id()));
    home::make_private_dir(&staging)?;
    let made = make(&Home::new(&staging), args);
    let moved = made.and_then(|made| {
        for entry in ["ca", "gateway", "keys", "config.yaml"] {
            fs::rename(staging.join(entry), home.dir().join(entry)).with_context(|| entry.to_owned())?;
        }
        fs::File::open(home.dir())?.sync_all()?;
        Ok(made)
    });
    let removed = fs::remove_dir_all(&staging);
    let made = Made {
        home: home.dir().display().to_string(),
        ..moved?
    };
    removed?;
    if made.keyring_backend == Backend::Test.to_string() {
        tracing_free_warning();
    }
    let store = Store::of(home, &super::load(home)?.store)
        .await
        .map_err(StartError::from)?;
    let detail = json!({ "ca_sha256": made.ca_sha256, "operator": made.operator_address, "relayer": made.relayer_address });
    Act::note(&store, &who(), ("init", "directory".to_owned()), "done", detail).await?;
    store.close().await;
    out.value(&made)
}

/// There is no log yet; this belongs on standard error.
fn tracing_free_warning() {
    let text = format!(
        "note: the chain keys lie unsealed (mode 0600); for production set {PASSPHRASE_FILE_ENV} before init\n"
    );
    drop(std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()));
}

fn refuse_used(home: &Home) -> anyhow::Result<()> {
    for entry in fs::read_dir(home.dir())? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        // Left by an init that was interrupted; nothing refers to it.
        if !name.starts_with(".init-") {
            let dir = home.dir().display();
            let what = format!(
                "{dir} is not empty ({name}); init never overwrites: choose another --home or move it away"
            );
            return Err(AdminError::Home(what).into());
        }
    }
    Ok(())
}

fn make(home: &Home, args: &InitArgs) -> anyhow::Result<Made> {
    let config = configuration(args)?;
    for dir in ["ca", "gateway", "keys", "keys/tasks", "keys/keyring"] {
        home::make_private_dir(&home.dir().join(dir))?;
    }
    let now = clock::now();
    let (ca, ca_key) = Ca::create(now, clock::random()?)?;
    home::create_private(&home.ca_key(), ca_key.as_bytes())?;
    home::create_private(&home.ca_cert(), ca.pem().as_bytes())?;
    let (server, server_key) = ca.issue_server(&config.gateway.names, now, clock::random()?)?;
    home::create_private(&home.server_key(), server_key.as_bytes())?;
    home::create_private(&home.server_cert(), server.pem.as_bytes())?;
    Seed::create(&home.token_key(), &clock::random()?)?;

    let sealed = std::env::var_os(PASSPHRASE_FILE_ENV).is_some();
    let backend = args
        .keyring_backend
        .unwrap_or(if sealed { Backend::File } else { Backend::Test });
    let keyring = Keyring::open(&home.keyring(), backend)?;
    let operator = add_key(&keyring, &config.keys.operator, args.import_operator.as_deref())?;
    let relayer = add_key(&keyring, &config.keys.relayer, args.import.as_deref())?;

    let text = format!(
        "# virtengine-provider. Every key may be overridden by VIRTENGINE_PROVIDER__SECTION__KEY.\n\
         # Check it with: virtengine-provider config check\n{}",
        serde_yaml_ng::to_string(&config)?
    );
    home::create_private(&home.config(), text.as_bytes())?;
    Ok(Made {
        home: String::new(),
        ca_sha256: ca.fingerprint(),
        operator_address: operator.address(&args.prefix)?,
        relayer_address: relayer.address(&args.prefix)?,
        keyring_backend: backend.to_string(),
    })
}

fn configuration(args: &InitArgs) -> anyhow::Result<Config> {
    let mut config = Config::default();
    let mut names = args.hostname.clone();
    names.extend(args.address.iter().map(ToString::to_string));
    if !names.is_empty() {
        let port = config.gateway.listen.port();
        config.gateway.endpoint = names.first().map(|n| match n.parse::<std::net::Ipv6Addr>() {
            Ok(v6) => format!("https://[{v6}]:{port}"),
            Err(_) => format!("https://{n}:{port}"),
        });
        config.gateway.names = names;
    }
    server_names(&config.gateway.names).context("--hostname")?;
    config.chain.id = args.chain_id.clone().unwrap_or_default();
    config.chain.contract = args.contract.clone().unwrap_or_default();
    if !args.rpc.is_empty() {
        config.chain.rpc.clone_from(&args.rpc);
    }
    if let Some(price) = &args.gas_price {
        let _: hpc_chain::gas::GasPrice = price.parse().context("--gas-price")?;
        config.chain.gas_price.clone_from(price);
    }
    // What is written must be readable again.
    let text = serde_yaml_ng::to_string(&config)?;
    Ok(Config::parse(&text, "the flags of init", std::iter::empty()).map_err(StartError::from)?)
}

/// A new key, or the one of a mnemonic in a file that only its owner can read.
pub(super) fn add_key(keyring: &Keyring, name: &str, import: Option<&Path>) -> anyhow::Result<KeyInfo> {
    let mnemonic = match import {
        None => Mnemonic::generate()?,
        Some(path) => {
            let bytes = zeroize::Zeroizing::new(read_private(path, 4096)?);
            let words = std::str::from_utf8(&bytes).with_context(|| path.display().to_string())?;
            Mnemonic::parse(words.trim()).with_context(|| path.display().to_string())?
        }
    };
    let key = LocalKey::from_mnemonic(&mnemonic, DEFAULT_PATH)?;
    Ok(keyring.add(name, &key, || crate::daemon::passphrase(name))?)
}
