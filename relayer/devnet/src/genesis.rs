//! The first state of a chain: its id and accounts, kept as `genesis.json` in the home folder.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::address;
use crate::coin::Coins;
use crate::error::Error;
use crate::kv::Layer;
use crate::state::{Account, Numbering, credit, next_id};

/// An account that exists from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenesisAccount {
    /// Bech32 address with the chain's prefix.
    pub address: String,
    /// Like `1000000stake` or `5token,10stake`.
    pub coins: String,
    /// The account's number, to test clients with numbers of all 64 bits; the next free one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "number_text")]
    pub number: Option<u64>,
}

impl GenesisAccount {
    /// An account with the next free number.
    pub fn new(address: impl Into<String>, coins: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            coins: coins.into(),
            number: None,
        }
    }
}

impl std::str::FromStr for GenesisAccount {
    type Err = String;

    /// Parses `ADDRESS=COINS` or `ADDRESS=COINS#NUMBER`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, rest) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}`: expected ADDRESS=AMOUNT, like wasm1…=1000000stake"))?;
        let (coins, number) = match rest.split_once('#') {
            Some((coins, number)) => {
                let number = number
                    .parse()
                    .map_err(|_| format!("`{number}`: expected an account number"))?;
                (coins, Some(number))
            }
            None => (rest, None),
        };
        address::parse(address).map_err(|error| error.log)?;
        Coins::parse(coins)?;
        Ok(Self {
            address: address.to_string(),
            coins: coins.to_string(),
            number,
        })
    }
}

/// Chain id, accounts and numbering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Genesis {
    pub chain_id: String,
    #[serde(default)]
    pub accounts: Vec<GenesisAccount>,
    /// How accounts made later are numbered.
    #[serde(default)]
    pub account_numbers: Numbering,
    /// Gas limits of all transactions of a block together; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "number_text")]
    pub max_block_gas: Option<u64>,
}

impl Genesis {
    /// A chain whose later accounts are numbered 0, 1, 2, ….
    pub fn new(chain_id: impl Into<String>, accounts: Vec<GenesisAccount>) -> Self {
        Self {
            chain_id: chain_id.into(),
            accounts,
            account_numbers: Numbering::Sequential,
            max_block_gas: None,
        }
    }

    /// Reads `genesis.json`.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Genesis`] for a file that does not parse.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Genesis(format!("{}: {error}", path.display())))
    }

    /// Writes `genesis.json`, whole or not at all; refuses to replace one.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Genesis`] if there is a file already.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        if path.exists() {
            return Err(Error::Genesis(format!(
                "{} exists already; choose another --home, or remove the folder to start anew",
                path.display()
            )));
        }
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::Genesis(error.to_string()))?;
        let temporary = path.with_extension("json.new");
        std::fs::write(&temporary, text).map_err(|error| Error::io(&temporary, error))?;
        std::fs::rename(&temporary, path).map_err(|error| Error::io(path, error))
    }

    /// Checks chain id, addresses and coins.
    ///
    /// # Errors
    /// [`Error::Genesis`] names what is wrong.
    pub fn check(&self) -> Result<(), Error> {
        self.apply(&mut Layer::over(&crate::kv::Nothing))
    }

    /// Checks the whole and writes the accounts into an empty state.
    pub(crate) fn apply(&self, state: &mut Layer<'_>) -> Result<(), Error> {
        let id = &self.chain_id;
        if id.is_empty()
            || id.len() > 50
            || !id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        {
            return Err(Error::Genesis(format!(
                "chain id `{id}`: 1 to 50 of letters, digits, `-`, `_`, `.`"
            )));
        }
        for account in &self.accounts {
            let wrong = |what: String| Error::Genesis(format!("account {}: {what}", account.address));
            let address = address::parse(&account.address).map_err(|error| wrong(error.log))?;
            if Account::load(state, &address).is_some() {
                return Err(wrong("listed twice".to_string()));
            }
            let number = match account.number {
                Some(number) => number,
                None => next_id(state, "account").saturating_sub(1),
            };
            Account {
                number,
                sequence: 0,
                pubkey: None,
            }
            .save(state, &address);
            let coins = Coins::parse(&account.coins).map_err(wrong)?;
            credit(state, &address, &coins).map_err(|error| wrong(error.log))?;
        }
        Ok(())
    }
}

/// Account numbers are text in JSON: many readers of JSON lose bits beyond 53.
mod number_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[allow(
        clippy::trivially_copy_pass_by_ref,
        clippy::ref_option,
        reason = "serde gives references"
    )]
    pub(super) fn serialize<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match number {
            Some(number) => serializer.collect_str(number),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}
