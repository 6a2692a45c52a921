//! What the paged registry is compared with: the same signed reports, the same facts kept for each node, in a record
//! of its own for each. One instance has one layout. Every signature is verified, sequence and time are judged as the
//! registry does; there is neither a lifecycle nor a sum over the cluster nor an event, so the comparison flatters
//! this contract. It is no example of anything and is deployed nowhere.

// `DepsMut` is a bundle of references; CosmWasm passes it by value.
#![allow(clippy::needless_pass_by_value)]

pub mod binary;
pub mod json;
pub mod msg;
#[cfg(test)]
mod tests;

use cosmwasm_std::{
    Binary, Deps, DepsMut, Env, MessageInfo, Response, StdError, Storage, VerificationError, entry_point,
    to_json_binary,
};
use hpc_schema::code::Code;
use hpc_schema::report::Tag;

use msg::{ExecuteMsg, InstantiateMsg, Layout, QueryMsg};

/// Why a message ended; nothing of it takes effect then, whosever fault it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A report that is refused.
    #[error("{0}")]
    Refused(Code),
    /// A node that is not there.
    #[error("unknown node")]
    UnknownNode,
    /// A message of the other layout.
    #[error("this instance has another layout")]
    Layout,
    /// JSON that does not serialise, storage that does not read.
    #[error(transparent)]
    Std(#[from] StdError),
    /// A key or a signature of the wrong length.
    #[error(transparent)]
    Verification(#[from] VerificationError),
}

const LAYOUT: &[u8] = b"l";

/// Chooses the layout.
///
/// # Errors
/// None.
#[entry_point]
pub fn instantiate(
    deps: DepsMut<'_>,
    _env: Env,
    _info: MessageInfo,
    msg: InstantiateMsg,
) -> Result<Response, Error> {
    deps.storage.set(LAYOUT, &[msg.layout as u8]);
    Ok(Response::new())
}

fn expect(storage: &dyn Storage, layout: Layout) -> Result<(), Error> {
    match storage.get(LAYOUT).as_deref() {
        Some(&[byte]) if byte == layout as u8 => Ok(()),
        _ => Err(Error::Layout),
    }
}

/// Registers nodes, takes reports.
///
/// # Errors
/// See [`Error`].
#[entry_point]
pub fn execute(deps: DepsMut<'_>, env: Env, _info: MessageInfo, msg: ExecuteMsg) -> Result<Response, Error> {
    match msg {
        ExecuteMsg::Register { cluster_id, nodes } => {
            for node in nodes {
                let tag = Tag::derive(
                    &env.block.chain_id,
                    env.contract.address.as_str(),
                    &cluster_id,
                    &node.node_id,
                    node.epoch,
                );
                match deps.storage.get(LAYOUT).as_deref() {
                    Some(&[byte]) if byte == Layout::Json as u8 => {
                        json::register(deps.storage, &cluster_id, &node)?;
                    }
                    _ => binary::register(deps.storage, &node, &tag),
                }
            }
        }
        ExecuteMsg::ReportJson { reports } => {
            expect(deps.storage, Layout::Json)?;
            for report in &reports {
                json::report(deps.storage, deps.api, &env, report)?;
            }
        }
        ExecuteMsg::ReportBinary { reports } => {
            expect(deps.storage, Layout::Binary)?;
            binary::report(deps.storage, deps.api, &env, &reports)?;
        }
    }
    Ok(Response::new())
}

/// The last sequence of a node.
///
/// # Errors
/// If there is no such node.
#[entry_point]
pub fn query(deps: Deps<'_>, _env: Env, msg: QueryMsg) -> Result<Binary, Error> {
    let sequence = match msg {
        QueryMsg::Json { cluster_id, node_id } => json::load(deps.storage, &cluster_id, &node_id)?.sequence,
        QueryMsg::Binary { page, slot } => binary::load(deps.storage, page, slot)?.sequence,
    };
    Ok(to_json_binary(&sequence)?)
}
