//! What a command needs from its surroundings: settings from flags, environment and profile, in this order (clap has
//! merged flags and environment already).

use std::path::PathBuf;

use hpc_chain::keys::{Backend, Keyring};
use hpc_chain::query::Chain;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::{ClientOptions, Endpoints};

use crate::args::{Connect, Global, KeyringArgs};
use crate::error::Failure;
use crate::output::Printer;
use crate::profile::{self, Home, Place, Profile};

/// Prefix of addresses where nothing says otherwise: that of wasmd and of the embedded chain.
const DEFAULT_PREFIX: &str = "wasm";

/// Shared by all commands.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) printer: Printer,
    pub(crate) home: Home,
    /// `--profile`.
    pub(crate) named: Option<Place>,
}

impl Context {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let home = Home::find(global.home.as_deref(), |name| std::env::var_os(name))?;
        let named = global.profile.as_deref().map(Place::parse).transpose()?;
        Ok(Self {
            printer: Printer {
                format: global.output,
            },
            home,
            named,
        })
    }

    /// The profile that is meant: the named one, else the one in use.
    pub(crate) fn chosen(&self) -> Result<Option<Place>, Failure> {
        match &self.named {
            Some(place) => Ok(Some(place.clone())),
            None => Ok(self.home.chosen()?.map(Place::Name)),
        }
    }

    /// Its content; a profile that was named or chosen must exist.
    pub(crate) fn profile(&self) -> Result<Option<Profile>, Failure> {
        self.chosen()?
            .map(|place| profile::existing(&self.home, &place))
            .transpose()
    }

    /// Its content if it exists: for commands that work without.
    pub(crate) fn profile_if_any(&self) -> Result<Option<Profile>, Failure> {
        Ok(self
            .chosen()?
            .map(|place| self.home.load(&place))
            .transpose()?
            .flatten())
    }

    /// The keyring.
    pub(crate) fn keyring(&self, args: &KeyringArgs) -> Result<Keyring, Failure> {
        Ok(Keyring::open(&self.keyring_dir(args), args.keyring_backend)?)
    }

    /// A keyring only to look names up in; `None` if the folder does not exist, which is then not created.
    pub(crate) fn keyring_if_any(&self, args: &KeyringArgs) -> Result<Option<Keyring>, Failure> {
        let dir = self.keyring_dir(args);
        if dir.exists() {
            Ok(Some(Keyring::open(&dir, Backend::File)?))
        } else {
            Ok(None)
        }
    }

    fn keyring_dir(&self, args: &KeyringArgs) -> PathBuf {
        args.keyring_dir.clone().unwrap_or_else(|| self.home.keyring())
    }
}

/// One chain, as the settings name it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) chain: Chain,
    pub(crate) profile: Option<Profile>,
    contract: Option<String>,
}

impl Session {
    /// Reads the settings. The profile is not needed where flags say everything.
    pub(crate) fn new(context: &Context, connect: &Connect) -> Result<Self, Failure> {
        let profile = match context.profile() {
            Err(_) if connect.node.is_some() && connect.contract.is_some() => context.profile_if_any()?,
            other => other?,
        };
        let from_profile = |field: fn(&Profile) -> &String| profile.as_ref().map(|p| field(p).clone());
        let node = connect.node.clone().or_else(|| from_profile(|p| &p.node));
        let node = node.ok_or_else(|| missing("node", "--node URL", "VIRTENGINE_NODE"))?;
        let contract = connect.contract.clone().or_else(|| from_profile(|p| &p.contract));
        Ok(Self {
            chain: dial(&node, connect)?,
            profile,
            contract,
        })
    }

    /// The registry contract.
    pub(crate) fn registry(&self) -> Result<RegistryClient, Failure> {
        let contract = self
            .contract
            .clone()
            .ok_or_else(|| missing("contract", "--contract ADDRESS", "VIRTENGINE_CONTRACT"))?;
        Ok(RegistryClient::new(self.chain.clone(), contract))
    }

    /// Bech32 prefix of the chain's addresses.
    pub(crate) fn prefix(&self) -> &str {
        let contract = self.contract.as_deref().and_then(profile::prefix_of);
        contract
            .or(self.profile.as_ref().map(|p| p.prefix.as_str()))
            .unwrap_or(DEFAULT_PREFIX)
    }
}

/// A client of the node at `url`.
pub(crate) fn dial(url: &str, connect: &Connect) -> Result<Chain, Failure> {
    let options = ClientOptions {
        timeout: connect.call_timeout,
        ..ClientOptions::default()
    };
    Ok(Chain::new(Endpoints::new(&[url], options)?))
}

/// The prefix for commands that need no chain.
pub(crate) fn prefix(context: &Context, flag: Option<&str>) -> Result<String, Failure> {
    if let Some(prefix) = flag {
        return Ok(prefix.to_owned());
    }
    Ok(context
        .profile_if_any()?
        .map_or_else(|| DEFAULT_PREFIX.to_owned(), |p| p.prefix))
}

/// A setting that neither flag, environment nor profile gives.
pub(crate) fn missing(what: &str, flag: &str, variable: &str) -> Failure {
    Failure::usage("setting_missing", format!("no {what} is set")).remedy(format!(
        "give {flag}, set {variable}, or make a profile with virtengine deploy"
    ))
}

/// An address, or the name of a key in the keyring.
pub(crate) fn address(
    context: &Context,
    keyring: &KeyringArgs,
    prefix: &str,
    text: &str,
) -> Result<String, Failure> {
    // Names of keys may look like anything short; addresses of this chain have its prefix and 38 characters or more.
    let looks_like_one = profile::prefix_of(text) == Some(prefix) && text.len() >= prefix.len() + 39;
    if looks_like_one {
        return Ok(text.to_owned());
    }
    let unknown = || {
        Failure::usage(
            "bad_address",
            format!("{text:?} is neither an address ({prefix}1…) nor a key in the keyring"),
        )
        .remedy("see virtengine keys list")
    };
    let keyring = context.keyring_if_any(keyring)?.ok_or_else(unknown)?;
    match keyring.info(text) {
        Ok(info) => Ok(info.address(prefix)?),
        Err(_) => Err(unknown()),
    }
}
