use cosmwasm_std::{DepsMut, MessageInfo, Response};
use hpc_schema::registry::{Event, InstantiateMsg, Params};

use super::{CONFIG, CONTRACT, Config, LAYOUT, params};
use crate::cluster::fields;
use crate::emit;
use crate::error::ContractError;

pub(crate) fn instantiate(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    msg: InstantiateMsg,
) -> Result<Response, ContractError> {
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
    Ok(emit::single(&Event::Admin {
        action: "instantiated".to_owned(),
        by: info.sender.to_string(),
    }))
}
