//! Migration from the code and the storage layout before.

use cosmwasm_std::{DepsMut, Env, Response, Storage};
use hpc_schema::code::Code;
use hpc_schema::registry::MigrateMsg;

use super::{CONFIG, CONTRACT, LAYOUT};
use crate::cluster::{ClusterHot, cold};
use crate::emit;
use crate::error::{ContractError, refuse};
use crate::node::page;

/// Takes the contract from the code before to this one, layout by layout.
pub(crate) fn migrate(deps: DepsMut<'_>, env: &Env, _msg: &MigrateMsg) -> Result<Response, ContractError> {
    let version = cw2::get_contract_version(deps.storage)?;
    if version.contract != CONTRACT {
        return refuse(
            Code::UnsupportedVersion,
            format!("{} is not this contract", version.contract),
        );
    }
    if numbers(&version.version) > numbers(env!("CARGO_PKG_VERSION")) {
        return refuse(
            Code::UnsupportedVersion,
            format!("version {} is later than this one", version.version),
        );
    }
    let mut config = CONFIG.load(deps.storage)?;
    match config.layout {
        LAYOUT => {}
        0 => add_heads(deps.storage)?,
        later => {
            return refuse(
                Code::UnsupportedVersion,
                format!("storage layout {later} is later than {LAYOUT}, which this code writes"),
            );
        }
    }
    config.layout = LAYOUT;
    CONFIG.save(deps.storage, &config)?;
    cw2::set_contract_version(deps.storage, CONTRACT, env!("CARGO_PKG_VERSION"))?;
    emit::admin("migrated", &env.contract.address, &env!("CARGO_PKG_VERSION"))
}

/// Major, minor, patch; what is none counts as 0.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version
        .split(['.', '-', '+'])
        .map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Layout 0, before the first release, had no page heads. One write for each 64 nodes.
fn add_heads(storage: &mut dyn Storage) -> Result<(), ContractError> {
    for index in 0..cold::count(storage) {
        let Some(id) = cold::id_of(storage, index)? else {
            continue;
        };
        for number in 0..ClusterHot::load(storage, &id)?.pages() {
            page::begin(storage, index, number);
        }
    }
    Ok(())
}
