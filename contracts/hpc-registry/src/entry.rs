//! Entry points, as a chain calls them: with messages that may be anything.

#[cfg(not(feature = "library"))]
use cosmwasm_std::entry_point;
use cosmwasm_std::{Binary, Deps, DepsMut, Env, MessageInfo, Response};
use hpc_schema::code::Code;
use hpc_schema::registry::{ExecuteMsg, InstantiateMsg, MigrateMsg, QueryMsg};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::contract;
use crate::error::ContractError;

/// A message whose refusal begins with a stable code, also where it cannot be read: a bad id, key or timestamp, a member
/// that is missing or unknown (`invalid_field`).
#[derive(Debug)]
pub struct Coded<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Coded<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        T::deserialize(de)
            .map(Self)
            .map_err(|e| D::Error::custom(ContractError::new(Code::InvalidField, e.to_string())))
    }
}

/// As [`contract::instantiate`].
///
/// # Errors
/// The same.
#[cfg_attr(not(feature = "library"), entry_point)]
pub fn instantiate(
    deps: DepsMut<'_>,
    env: Env,
    info: MessageInfo,
    msg: Coded<InstantiateMsg>,
) -> Result<Response, ContractError> {
    contract::instantiate(deps, env, info, msg.0)
}

/// As [`contract::execute`].
///
/// # Errors
/// The same.
#[cfg_attr(not(feature = "library"), entry_point)]
pub fn execute(
    deps: DepsMut<'_>,
    env: Env,
    info: MessageInfo,
    msg: Coded<ExecuteMsg>,
) -> Result<Response, ContractError> {
    contract::execute(deps, env, info, msg.0)
}

/// As [`contract::query`].
///
/// # Errors
/// The same.
#[cfg_attr(not(feature = "library"), entry_point)]
pub fn query(deps: Deps<'_>, env: Env, msg: Coded<QueryMsg>) -> Result<Binary, ContractError> {
    contract::query(deps, env, msg.0)
}

/// As [`contract::migrate`].
///
/// # Errors
/// The same.
#[cfg_attr(not(feature = "library"), entry_point)]
pub fn migrate(deps: DepsMut<'_>, env: Env, msg: Coded<MigrateMsg>) -> Result<Response, ContractError> {
    contract::migrate(deps, env, msg.0)
}

#[cfg(test)]
mod tests {
    use cosmwasm_std::from_json;

    use super::*;

    fn refusal(msg: &str) -> String {
        from_json::<Coded<ExecuteMsg>>(msg).unwrap_err().to_string()
    }

    #[test]
    fn a_message_that_cannot_be_read_is_refused_with_a_code_and_what_is_wrong() {
        for (msg, named) in [
            (
                r#"{"activate_cluster":{"cluster_id":"no"}}"#,
                "cluster_id must have",
            ),
            (r#"{"deregister_node":{"node_id":"-abcd"}}"#, "node_id may hold"),
            (
                r#"{"set_task_key":{"cluster_id":"c-01","task_public_key":"xx"}}"#,
                "base64",
            ),
            (r#"{"activate_cluster":{}}"#, "missing field `cluster_id`"),
            (
                r#"{"activate_cluster":{"cluster_id":"c-01","x":1}}"#,
                "unknown field `x`",
            ),
            (r#"{"no_such":{}}"#, "unknown variant `no_such`"),
        ] {
            let text = refusal(msg);
            assert!(
                text.contains(": invalid_field: ") && text.contains(named),
                "{text}"
            );
        }
        assert!(from_json::<Coded<ExecuteMsg>>(r#"{"activate_cluster":{"cluster_id":"c-01"}}"#).is_ok());
    }
}
