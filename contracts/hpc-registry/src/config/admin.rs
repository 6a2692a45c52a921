//! The admin's own messages; rights are checked before they come here.

use cosmwasm_std::{DepsMut, MessageInfo, Response};

use super::CONFIG;
use crate::cluster::fields;
use crate::emit;
use crate::error::ContractError;

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
    emit::admin("admin_proposed", &info.sender, &config.proposed_admin)
}

pub(crate) fn accept(deps: DepsMut<'_>, info: &MessageInfo) -> Result<Response, ContractError> {
    let mut config = CONFIG.load(deps.storage)?;
    config.admin = info.sender.clone();
    config.proposed_admin = None;
    CONFIG.save(deps.storage, &config)?;
    emit::admin("admin_changed", &info.sender, &config.admin)
}

pub(crate) fn pause(deps: DepsMut<'_>, info: &MessageInfo, paused: bool) -> Result<Response, ContractError> {
    let mut config = CONFIG.load(deps.storage)?;
    config.registrations_paused = paused;
    CONFIG.save(deps.storage, &config)?;
    let action = if paused {
        "registrations_paused"
    } else {
        "registrations_resumed"
    };
    emit::admin(action, &info.sender, &())
}
