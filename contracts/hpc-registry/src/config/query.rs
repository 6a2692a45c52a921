use cosmwasm_std::{Deps, Env};
use hpc_schema::registry::{BlockRef, ConfigAnswer};
use hpc_schema::time::UnixSeconds;

use super::CONFIG;
use crate::error::ContractError;

/// The block that an answer holds for.
pub(crate) fn block(env: &Env) -> BlockRef {
    BlockRef {
        height: env.block.height,
        time: now(env),
    }
}

/// Block time in whole seconds.
pub(crate) fn now(env: &Env) -> UnixSeconds {
    UnixSeconds(env.block.time.seconds())
}

pub(crate) fn config(deps: Deps<'_>, env: &Env) -> Result<ConfigAnswer, ContractError> {
    let config = CONFIG.load(deps.storage)?;
    let version = cw2::get_contract_version(deps.storage)?;
    Ok(ConfigAnswer {
        admin: config.admin.into_string(),
        proposed_admin: config.proposed_admin.map(cosmwasm_std::Addr::into_string),
        registrations_paused: config.registrations_paused,
        contract: version.contract,
        version: version.version,
        layout: config.layout,
        chain_id: env.block.chain_id.clone(),
        block: block(env),
    })
}
