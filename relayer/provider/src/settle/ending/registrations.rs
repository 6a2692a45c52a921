use hpc_chain::code::{self, Verdict};
use hpc_chain::hash::TxHash;
use hpc_chain::query::QueryError;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_chain::settle::{BatchId, End, Inclusion};
use hpc_schema::code::Code;
use hpc_schema::registry::RegisterAnswer;

use super::{Ending, EndingError, RegisterFate, included};
use crate::enrol::{self, Registration, RegistrationState};
use crate::store::{Store, StoreError};

/// Works out how the registrations of a transaction ended.
pub(in crate::settle) async fn of_registrations(
    client: &RegistryClient,
    store: &Store,
    batch: BatchId,
    hash: Option<TxHash>,
    end: &End,
) -> Result<Ending, EndingError> {
    let mut conn = store.reader().acquire().await.map_err(StoreError::from)?;
    let registrations = enrol::in_batch(&mut conn, batch.0).await?;
    drop(conn);
    let alone = registrations.len() == 1;
    let result = if let End::Included(inclusion) = end {
        included(client, hash, inclusion.height).await?
    } else {
        None
    };
    let mut fates = Vec::new();
    for (index, r) in registrations.into_iter().enumerate() {
        let fate = match end {
            _ if r.state != RegistrationState::Sent => RegisterFate::Returned,
            End::Included(inclusion) => {
                let data = result
                    .as_ref()
                    .and_then(|x| response_data(x, index).ok().flatten());
                match data.and_then(|d| serde_json::from_slice::<RegisterAnswer>(&d).ok()) {
                    Some(answer) => RegisterFate::OnChain(answer.epoch),
                    None => on_record(&client.from_height(inclusion.height), &r).await?,
                }
            }
            End::Consumed { height, .. } => on_record(&client.from_height(*height), &r).await?,
            End::Failed(inclusion) if alone => refusal(inclusion),
            End::Failed(_) | End::Expired { .. } => RegisterFate::Returned,
        };
        fates.push((r, fate));
    }
    Ok(Ending::Register(fates))
}

fn refusal(inclusion: &Inclusion) -> RegisterFate {
    match code::of_abci(&inclusion.codespace, inclusion.code, &inclusion.log) {
        Verdict::ContractError => {
            let code = code::contract_code(&inclusion.log).unwrap_or(Code::NotAuthorized);
            RegisterFate::Refused(code, code::contract_message(&inclusion.log).to_owned())
        }
        _ => RegisterFate::Returned,
    }
}

/// Whether the chain has the node with this key since the registration was sent. The client counts only answers of the
/// height at which the transaction's sequence was used.
async fn on_record(client: &RegistryClient, r: &Registration) -> Result<RegisterFate, EndingError> {
    match client.node(Some(r.cluster_id.clone()), r.node_id.clone()).await {
        Ok(answer) => {
            let node = answer.value.node;
            // Block time may be a little behind our clock.
            let since = node.registered_at.0.saturating_add(60) >= r.updated_at / 1000;
            if since && node.agent_pubkey == r.public_key {
                Ok(RegisterFate::OnChain(node.epoch))
            } else {
                Ok(RegisterFate::Returned)
            }
        }
        Err(QueryError::Contract { .. }) => Ok(RegisterFate::Returned),
        Err(e) => Err(e.into()),
    }
}
