//! Administration and parameters.

pub(crate) mod admin;
pub(crate) mod instantiate;
pub(crate) mod migrate;
pub(crate) mod params;
pub(crate) mod query;

use cosmwasm_std::Addr;
use cw_storage_plus::Item;
use serde::{Deserialize, Serialize};

/// Version of the storage layout; a change of it needs a migration.
pub(crate) const LAYOUT: u32 = 1;

/// Name under which cw2 knows the contract.
pub(crate) const CONTRACT: &str = "crates.io:hpc-registry";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) admin: Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proposed_admin: Option<Addr>,
    pub(crate) registrations_paused: bool,
    pub(crate) layout: u32,
}

pub(crate) const CONFIG: Item<Config> = Item::new("config");
