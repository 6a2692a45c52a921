//! The admin's own messages; rights are checked before they come here.

use cosmwasm_std::{DepsMut, MessageInfo, Response};
use hpc_schema::registry::Event;

use super::CONFIG;
use crate::cluster::fields;
use crate::emit;
use crate::error::ContractError;

fn done(action: &str, info: &MessageInfo) -> Response {
    emit::single(&Event::Admin {
        action: action.to_owned(),
        by: info.sender.to_string(),
    })
}

pub(crate) fn propose(
    deps: DepsMut<'_>,
    info: &MessageInfo,
    admin: Option<&str>,
) -> Result<Response, ContractError> {
    let mut config = CONFIG.load(deps.storage)?;
    config.proposed_admin = admin
        .map(|text| fields::address(deps.api, "admin", text))
        .transpose()?;
    CONFIG.save(deps.storage, &config)?;
    Ok(done("admin_proposed", info))
}

pub(crate) fn accept(deps: DepsMut<'_>, info: &MessageInfo) -> Result<Response, ContractError> {
    let mut config = CONFIG.load(deps.storage)?;
    config.admin = info.sender.clone();
    config.proposed_admin = None;
    CONFIG.save(deps.storage, &config)?;
    Ok(done("admin_changed", info))
}

pub(crate) fn pause(deps: DepsMut<'_>, info: &MessageInfo, paused: bool) -> Result<Response, ContractError> {
    let mut config = CONFIG.load(deps.storage)?;
    config.registrations_paused = paused;
    CONFIG.save(deps.storage, &config)?;
    Ok(done(
        if paused {
            "registrations_paused"
        } else {
            "registrations_resumed"
        },
        info,
    ))
}
