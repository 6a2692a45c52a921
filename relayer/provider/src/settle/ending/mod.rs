//! Settles the members of a transaction that has ended, together with the machine's state, in one commit.

mod registrations;
mod reports;
mod write;

use hpc_chain::code::Class;
use hpc_chain::hash::TxHash;
use hpc_chain::query::QueryError;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::{ExecResult, RpcError};
use hpc_chain::settle::io::result_in_block;
use hpc_schema::code::Code;

pub(super) use registrations::of_registrations;
pub(super) use reports::of_reports;
pub(super) use write::{announce, write};

use crate::enrol::Registration;
use crate::spool::{EndedAs, Member};
use crate::store::StoreError;

/// The end cannot be worked off yet; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndingError {
    /// The chain cannot be asked.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a transaction's end means for what was in it.
#[derive(Debug)]
pub(super) enum Ending {
    /// For each report.
    Reports(Vec<(Member, Fate)>),
    /// For each registration.
    Register(Vec<(Registration, RegisterFate)>),
    /// Nothing was in it.
    Nothing,
}

/// What becomes of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has ended.
    Ended(EndedAs, Option<Code>),
    /// It waits again.
    Returned,
}

/// What becomes of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RegisterFate {
    /// It began this epoch.
    OnChain(u64),
    /// The contract refuses it.
    Refused(Code, String),
    /// It waits again.
    Returned,
}

/// The result of a transaction that is in this block: out of an index of transactions, or of the block where no node has one.
/// None where both are gone, or refused: then the contract is asked.
async fn included(
    client: &RegistryClient,
    hash: Option<TxHash>,
    height: u64,
) -> Result<Option<ExecResult>, EndingError> {
    let Some(hash) = hash else { return Ok(None) };
    let chain = client.chain();
    match chain.endpoints().find_tx(hash).await {
        Ok(Some(tx)) => return Ok(Some(tx.result)),
        Ok(None) => {}
        Err(e) if is_final(&e) => tracing::debug!(tx = %hash, error = %e, "its block is read instead"),
        Err(e) => return Err(QueryError::from(e).into()),
    }
    match result_in_block(chain, hash, height).await {
        Err(QueryError::Rpc(e)) if is_final(&e) => {
            tracing::debug!(tx = %hash, height, error = %e, "the result of a transaction is not kept");
            Ok(None)
        }
        asked => Ok(asked?),
    }
}

/// Whether asking again is of no use: it is kept no more, or refused.
fn is_final(e: &RpcError) -> bool {
    matches!(e, RpcError::NotKept { .. }) || e.class() == Class::Rejected
}
