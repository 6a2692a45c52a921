//! Migration from the layout before.

use cosmwasm_std::{DepsMut, Env, Response};
use hpc_schema::code::Code;
use hpc_schema::registry::{Event, MigrateMsg};

use super::{CONFIG, CONTRACT, LAYOUT};
use crate::emit;
use crate::error::{ContractError, refuse};

/// Takes the contract from the code before to this one.
///
/// Layout 1 is the first one published: any other on record was written by a later version.
pub(crate) fn migrate(deps: DepsMut<'_>, env: &Env, _msg: &MigrateMsg) -> Result<Response, ContractError> {
    let version = cw2::get_contract_version(deps.storage)?;
    if version.contract != CONTRACT {
        return refuse(
            Code::UnsupportedVersion,
            format!("{} is not this contract", version.contract),
        );
    }
    let config = CONFIG.load(deps.storage)?;
    if config.layout != LAYOUT {
        return refuse(
            Code::UnsupportedVersion,
            format!("storage layout {} cannot be migrated to {LAYOUT}", config.layout),
        );
    }
    cw2::set_contract_version(deps.storage, CONTRACT, env!("CARGO_PKG_VERSION"))?;
    Ok(emit::single(&Event::Admin {
        action: "migrated".to_owned(),
        by: env.contract.address.to_string(),
    }))
}
