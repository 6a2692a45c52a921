use cosmwasm_std::{Addr, DepsMut, MessageInfo, Response};
use hpc_schema::code::Code;
use hpc_schema::registry::{InstantiateMsg, Params};
use serde::Serialize;

use super::{CONFIG, CONTRACT, Config, LAYOUT, params};
use crate::cluster::fields;
use crate::emit;
use crate::error::{ContractError, refuse};

/// What holds from the beginning, as the event tells it.
#[derive(Serialize)]
struct Begun<'a> {
    admin: &'a Addr,
    params: &'a Params,
}

pub(crate) fn instantiate(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    msg: InstantiateMsg,
) -> Result<Response, ContractError> {
    if !info.funds.is_empty() {
        return refuse(Code::InvalidDeposit, "instantiation takes no coins");
    }
    let admin = match &msg.admin {
        Some(text) => fields::address(deps.api, "admin", text)?,
        None => info.sender.clone(),
    };
    let initial = msg.params.apply(&Params::default())?;
    params::save(deps.storage, &initial);
    let config = Config {
        admin,
        proposed_admin: None,
        registrations_paused: false,
        layout: LAYOUT,
    };
    CONFIG.save(deps.storage, &config)?;
    cw2::set_contract_version(deps.storage, CONTRACT, env!("CARGO_PKG_VERSION"))?;
    let begun = Begun {
        admin: &config.admin,
        params: &initial,
    };
    emit::admin("instantiated", &info.sender, &begun)
}
