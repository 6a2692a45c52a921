use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hpc_chain::gas::GasPrice;
use hpc_chain::keys::{Backend, Keyring, KeyringError, SharedSigner};
use hpc_chain::query::Chain;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::{ClientOptions, Endpoints, RpcError, Trust};
use hpc_schema::time::UnixSeconds;
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use super::check::{ServerState, server_state};
use super::error::StartError;
use super::passphrase::passphrase;
use crate::alert;
use crate::clock;
use crate::config::{Config, apart};
use crate::gateway::{ServerCertificate, check_server};
use crate::home::{self, Home};
use crate::identity::{Anchors, Ca, Verifying};
use crate::registry::TaskKeys;
use crate::settle::Signers;

/// The keys that the daemon works with.
pub(super) struct Keys {
    pub(super) ca: Ca,
    pub(super) operator: SharedSigner,
    /// One for each paying key, never empty.
    pub(super) signers: Vec<Signers>,
    pub(super) price: GasPrice,
    pub(super) ceiling: Option<GasPrice>,
}

/// How long a start waits for the directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn lock(home: &Home) -> Result<fs::File, StartError> {
    let path = home.dir().join("lock");
    let file = |cause| StartError::File {
        path: path.clone(),
        cause,
    };
    let lock = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(file)?;
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            // One that has just ended may leave it for a moment in a program that was being started.
            Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                sleep(Duration::from_millis(50)).await;
            }
            Err(fs::TryLockError::WouldBlock) => return Err(StartError::Locked(home.dir().to_owned())),
            Err(fs::TryLockError::Error(e)) => return Err(file(e)),
        }
    }
}

/// Whether a daemon runs on this directory.
///
/// # Errors
/// If its lock cannot be looked at.
pub(crate) fn runs(home: &Home) -> Result<bool, StartError> {
    let path = home.dir().join("lock");
    match home::try_lock_existing(&path) {
        Ok(lock) => Ok(lock.is_none()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(StartError::File { path, cause }),
    }
}

/// Whether the directory's keys and certificates can be used: there, closed to others, readable, fitting.
///
/// # Errors
/// What `run` or a reload would say.
pub(crate) fn check_files(home: &Home, config: &Config) -> Result<(), StartError> {
    alert::check(&config.alerts)?;
    client(config)?;
    let (ca, now) = (keys(home, config)?.ca, clock::now());
    let anchors = Anchors::load(&ca, &home.trusted_cas(), now)?;
    let chain = read_chain(home)?;
    let names = &config.gateway.names;
    // One that the start makes anew is not looked at there.
    if server_state(&chain, &ca, names, now) != ServerState::Ours {
        check_server(&chain, &read_server_key(home)?, &anchors, names, now)?;
    }
    // `run` starts without: a cluster whose key is of no use is a trouble of its orders alone.
    Ok(TaskKeys::check(home)?)
}

pub(super) fn keys(home: &Home, config: &Config) -> Result<Keys, StartError> {
    let ca = load_ca(home)?;
    Verifying::load(home)?;
    let prefix = prefix_of(&config.chain.contract)?;
    let operator = named_key(home, "keys.operator", &config.keys.operator)?;
    let price = gas_price("chain.gas_price", &config.chain.gas_price)?;
    let ceiling = match &config.chain.gas_price_max {
        Some(text) => Some(gas_price("chain.gas_price_max", text)?),
        None => None,
    };
    let of_operator = operator.address(&prefix)?;
    let mut signers = Vec::new();
    for (named_by, name) in config.keys.paying() {
        let relayer = named_key(home, named_by, name)?;
        let address = relayer.address(&prefix)?;
        // The name may be another one and the key the same.
        if address == of_operator {
            let operator = &config.keys.operator;
            return Err(StartError::Value {
                key: "keys.operator",
                message: format!(
                    "{operator} is the account of {name} as well, which {named_by} names: {}",
                    apart(named_by)
                ),
            });
        }
        // Two drivers of one account would take each other's sequence numbers.
        if let Some(other) = signers.iter().find(|s: &&Signers| s.address == address) {
            return Err(StartError::Value {
                key: "keys.extra_relayers",
                message: format!("{name} is the account of {} as well; name it once", other.name),
            });
        }
        signers.push(Signers {
            name: name.clone(),
            address,
            relayer: Some(relayer),
            operator_name: config.keys.operator.clone(),
            operator: Arc::clone(&operator),
            prefix: prefix.clone(),
            granter: config.chain.fee_granter.clone(),
            duties: signers.is_empty(),
        });
    }
    Ok(Keys {
        ca,
        operator,
        signers,
        price,
        ceiling,
    })
}

fn gas_price(key: &'static str, text: &str) -> Result<GasPrice, StartError> {
    text.parse().map_err(|e| StartError::Value {
        key,
        message: format!("{e}"),
    })
}

/// The CA of a directory.
///
/// # Errors
/// If a file is missing, open to others or broken.
pub(crate) fn load_ca(home: &Home) -> Result<Ca, StartError> {
    let cert = fs::read_to_string(home.ca_cert()).map_err(file(home.ca_cert()))?;
    let key = home::read_secret(&home.ca_key()).map_err(file(home.ca_key()))?;
    Ok(Ca::from_pem(&cert, &key)?)
}

fn file(path: PathBuf) -> impl FnOnce(std::io::Error) -> StartError {
    move |cause| StartError::File { path, cause }
}

/// The gateway's certificate with those that lead to its CA, PEM.
pub(super) fn read_chain(home: &Home) -> Result<String, StartError> {
    let path = home.server_cert();
    fs::read_to_string(&path).map_err(file(path))
}

/// The gateway's key, PEM.
pub(super) fn read_server_key(home: &Home) -> Result<Zeroizing<String>, StartError> {
    let path = home.server_key();
    home::read_secret(&path).map_err(file(path))
}

/// The key that the configuration names under `named_by`.
///
/// # Errors
/// As [`load_key`]; of one that is not there with what helps.
pub(crate) fn named_key(home: &Home, named_by: &'static str, name: &str) -> Result<SharedSigner, StartError> {
    load_key(home, name).map_err(|e| not_found(named_by, name, e))
}

/// Of a key that is not there with the key of the configuration that names it, and what helps.
pub(crate) fn not_found(named_by: &'static str, name: &str, e: KeyringError) -> StartError {
    match e {
        KeyringError::NotFound { .. } => StartError::Value {
            key: named_by,
            message: format!(
                "{e}; make it: virtengine-provider keys add {name}, or name one of: virtengine-provider keys list"
            ),
        },
        other => other.into(),
    }
}

/// A key of the directory's keyring; a sealed one is opened with the passphrase file that the environment
/// names, one in an HSM when it signs.
///
/// # Errors
/// If it is not there or cannot be opened.
pub fn load_key(home: &Home, name: &str) -> Result<SharedSigner, KeyringError> {
    Keyring::open(&home.keyring(), Backend::Test)?.signer(name, |info| passphrase(&info.name))
}

/// What a change of the keyring's passphrase that was killed has left goes; it is in nobody's way if it cannot.
pub(super) fn sweep(home: &Home) {
    match Keyring::open(&home.keyring(), Backend::Test).and_then(|keyring| keyring.sweep()) {
        Ok(gone) if gone.is_empty() => {}
        Ok(gone) => tracing::info!(
            files = gone.join(" "),
            "unfinished files of the keyring are removed"
        ),
        Err(e) => tracing::warn!(error = %e, "unfinished files of the keyring stay"),
    }
}

/// The bech32 prefix of an address.
///
/// # Errors
/// If it has none.
pub fn prefix_of(address: &str) -> Result<String, StartError> {
    match address.rsplit_once('1') {
        Some((prefix, rest)) if !prefix.is_empty() && rest.len() >= 38 => Ok(prefix.to_owned()),
        _ => Err(StartError::Value {
            key: "chain.contract",
            message: format!("{address:?} is no bech32 address of a contract"),
        }),
    }
}

fn trust(path: &Path) -> Result<Trust, StartError> {
    let wrong = |e: &dyn std::fmt::Display| StartError::Value {
        key: "chain.ca_file",
        message: format!("{}: {e}", path.display()),
    };
    let pem = fs::read(path).map_err(|e| wrong(&e))?;
    Trust::from_pem(&pem).map_err(|e| wrong(&e))
}

/// The client of the contract.
pub(crate) fn client(config: &Config) -> Result<RegistryClient, StartError> {
    let trust = match &config.chain.ca_file {
        Some(path) => Some(trust(path)?),
        None => None,
    };
    let options = ClientOptions {
        timeout: config.chain.timeout.duration(),
        trust,
        ..ClientOptions::default()
    };
    let endpoints = Endpoints::new(&config.chain.rpc, options).map_err(|e: RpcError| StartError::Value {
        key: "chain.rpc",
        message: e.to_string(),
    })?;
    Ok(RegistryClient::new(
        Chain::new(endpoints.of_chain(&config.chain.id)),
        config.chain.contract.clone(),
    ))
}

/// The gateway's certificate, issued anew if it is old or lacks a configured name. One of somebody else's that no agent takes
/// is refused; what only its time, its CA's or a name is wrong with is told once the daemon runs, for a clock may be off that
/// early.
pub(super) fn server_certificate(
    home: &Home,
    config: &Config,
    ca: &Ca,
    now: UnixSeconds,
) -> Result<ServerCertificate, StartError> {
    let (cert, names) = (read_chain(home)?, &config.gateway.names);
    if server_state(&cert, ca, names, now) != ServerState::Ours {
        let certificate = ServerCertificate::new(&cert, &read_server_key(home)?)?;
        // Those that have ended too: mostly a CA ends with the last certificate that it has issued.
        let anchors = Anchors::load(ca, &home.trusted_cas(), UnixSeconds(0))?;
        return match certificate.check(&anchors, names, now) {
            Err(why) if !why.is_of_time_or_name() => Err(why.into()),
            _ => Ok(certificate),
        };
    }
    let serial = clock::random().map_err(std::io::Error::other)?;
    let (issued, key) = ca.issue_server(&config.gateway.names, now, serial)?;
    super::store_server(home, &issued.pem, &key)?;
    tracing::info!(until = %issued.not_after, "the gateway's certificate was issued anew");
    Ok(ServerCertificate::new(&issued.pem, &key)?)
}
