//! Settles the members of a transaction that has ended, together with the machine's state, in one commit.

mod registrations;
mod reports;
mod write;

use hpc_chain::hash::TxHash;
use hpc_chain::query::QueryError;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::{Client, ExecResult};
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

async fn included(client: &RegistryClient, hash: Option<TxHash>) -> Result<Option<ExecResult>, EndingError> {
    let Some(hash) = hash else { return Ok(None) };
    let asked = client
        .chain()
        .endpoints()
        .ask(|c: Client| async move { c.tx(hash).await })
        .await;
    Ok(asked.map_err(QueryError::from)?.map(|tx| tx.result))
}
