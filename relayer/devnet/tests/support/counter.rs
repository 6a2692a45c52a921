//! A small contract that shows every way in which a contract can end.
#![allow(
    clippy::needless_pass_by_value,
    reason = "CosmWasm's entry points take their arguments by value"
)]

use std::sync::Arc;

use cosmwasm_std::{
    BankMsg, Binary, Deps, DepsMut, Env, Event, MessageInfo, Response, StdError, StdResult, coins,
    to_json_binary,
};
use hpc_devnet::{NativeContract, Typed};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
pub(crate) struct Instantiate {
    pub(crate) count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Execute {
    /// Adds to the counter; answers the new value as data.
    Increment { by: u64 },
    /// Writes, then refuses.
    Fail {},
    /// Writes, then panics.
    Panic {},
    /// Sends a coin to the sender.
    Pay {},
    /// Asks for a submessage that the embedded chain does not run.
    Burn {},
    /// Succeeds with neither attributes nor data.
    Quiet {},
    /// A custom event.
    Announce { text: String },
    /// Verifies a signature with the host's function.
    Verify {
        message: Binary,
        signature: Binary,
        key: Binary,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Query {
    Get {},
    Fail {},
    Panic {},
    Balance {},
    Time {},
}

#[derive(Deserialize)]
pub(crate) struct Migrate {
    pub(crate) count: u64,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) count: u64,
}

const KEY: &[u8] = b"count";

fn load(deps: &Deps<'_>) -> u64 {
    deps.storage
        .get(KEY)
        .map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()))
}

fn instantiate(deps: DepsMut<'_>, _: Env, info: MessageInfo, msg: Instantiate) -> StdResult<Response> {
    deps.storage.set(KEY, &msg.count.to_be_bytes());
    Ok(Response::new().add_attribute("creator", info.sender))
}

fn execute(deps: DepsMut<'_>, _: Env, info: MessageInfo, msg: Execute) -> StdResult<Response> {
    let count = load(&deps.as_ref());
    match msg {
        Execute::Increment { by } => {
            let sum = count + by;
            deps.storage.set(KEY, &sum.to_be_bytes());
            deps.storage
                .set(format!("by/{}", info.sender).as_bytes(), &by.to_be_bytes());
            Ok(Response::new()
                .add_attribute("count", sum.to_string())
                .add_attribute(
                    "funds",
                    info.funds.iter().map(ToString::to_string).collect::<String>(),
                )
                .set_data(to_json_binary(&Count { count: sum })?))
        }
        Execute::Fail {} => {
            deps.storage.set(KEY, &0u64.to_be_bytes());
            Err(StdError::msg("refused on purpose"))
        }
        Execute::Panic {} => {
            deps.storage.set(KEY, &0u64.to_be_bytes());
            panic!("on purpose")
        }
        Execute::Pay {} => {
            let pay = BankMsg::Send {
                to_address: info.sender.into(),
                amount: coins(1, "stake"),
            };
            Ok(Response::new().add_message(pay))
        }
        Execute::Burn {} => Ok(Response::new().add_message(BankMsg::Burn {
            amount: coins(1, "stake"),
        })),
        Execute::Quiet {} => Ok(Response::new()),
        Execute::Announce { text } => {
            Ok(Response::new().add_event(Event::new("announced").add_attribute("text", text)))
        }
        Execute::Verify {
            message,
            signature,
            key,
        } => {
            let valid = deps.api.ed25519_verify(&message, &signature, &key)?;
            Ok(Response::new().add_attribute("valid", valid.to_string()))
        }
    }
}

fn query(deps: Deps<'_>, env: Env, msg: Query) -> StdResult<Binary> {
    match msg {
        Query::Get {} => to_json_binary(&Count { count: load(&deps) }),
        Query::Fail {} => Err(StdError::msg("no answer on purpose")),
        Query::Panic {} => panic!("on purpose"),
        Query::Balance {} => to_json_binary(&deps.querier.query_balance(env.contract.address, "stake")?),
        Query::Time {} => to_json_binary(&env.block.time.seconds()),
    }
}

fn migrate(deps: DepsMut<'_>, _: Env, msg: Migrate) -> StdResult<Response> {
    deps.storage.set(KEY, &msg.count.to_be_bytes());
    Ok(Response::new().add_attribute("migrated", "yes"))
}

pub(crate) fn contract() -> Arc<dyn NativeContract> {
    Arc::new(Typed::new("counter", instantiate, execute, query, migrate))
}
