use std::collections::{BTreeMap, BTreeSet, HashMap};

use hpc_chain::code::{self, Verdict};
use hpc_chain::hash::TxHash;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_chain::rpc::ExecResult;
use hpc_chain::settle::{BatchId, End, Inclusion};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{RelayView, SubmitAnswer};

use super::super::outcome::{Outcome, of_answer};
use super::{Ending, EndingError, Fate, included};
use crate::spool::{self, EndedAs, Member};
use crate::store::{Store, StoreError};

/// Works out how the reports of a transaction ended.
pub(in crate::settle) async fn of_reports(
    client: &RegistryClient,
    store: &Store,
    batch: BatchId,
    hash: Option<TxHash>,
    end: &End,
) -> Result<Ending, EndingError> {
    let members = spool::members(
        &mut *store.reader().acquire().await.map_err(StoreError::from)?,
        batch.0,
    )
    .await?;
    let fates = match end {
        End::Included(inclusion) => {
            let outcomes = match included(client, hash, inclusion.height).await? {
                Some(result) => submit_outcomes(&result, &members),
                None => vec![Outcome::Unknown; members.len()],
            };
            resolve(client, &members, &outcomes, inclusion.height).await?
        }
        End::Consumed { height } => {
            resolve(client, &members, &vec![Outcome::Unknown; members.len()], *height).await?
        }
        End::Failed(inclusion) => vec![of_failure(inclusion, members.len()); members.len()],
        End::Expired { .. } => vec![Fate::Returned; members.len()],
    };
    Ok(Ending::Reports(members.into_iter().zip(fates).collect()))
}

/// A failed message took all of its reports with it; alone, the contract's refusal is this report's.
fn of_failure(inclusion: &Inclusion, count: usize) -> Fate {
    let verdict = code::of_abci(&inclusion.codespace, inclusion.code, &inclusion.log);
    if verdict == Verdict::ContractError && count == 1 {
        let code = code::contract_code(&inclusion.log).unwrap_or(Code::Malformed);
        return Fate::Ended(EndedAs::Refused, Some(code));
    }
    Fate::Returned
}

fn submit_outcomes(result: &ExecResult, members: &[Member]) -> Vec<Outcome> {
    let mut group_ends = Vec::new();
    let mut count = 0;
    for group in members.chunk_by(|a, b| a.cluster_id == b.cluster_id) {
        count += group.len();
        group_ends.push(count);
    }
    let data = response_data(result, 0).ok().flatten();
    match data.and_then(|d| serde_json::from_slice::<SubmitAnswer>(&d).ok()) {
        Some(answer) => of_answer(&answer, &group_ends, members.len()),
        None => {
            tracing::warn!(
                "the contract's answer to a batch cannot be read; the nodes' sequences are asked for"
            );
            vec![Outcome::Unknown; members.len()]
        }
    }
}

/// Gives every report its fate; what is unknown is asked of the contract, and only an answer of `height` or above counts:
/// below it the transaction had not run yet.
async fn resolve(
    client: &RegistryClient,
    members: &[Member],
    outcomes: &[Outcome],
    height: u64,
) -> Result<Vec<Fate>, EndingError> {
    let mut ask: BTreeMap<ClusterId, BTreeSet<NodeId>> = BTreeMap::new();
    for (m, outcome) in members.iter().zip(outcomes) {
        if *outcome == Outcome::Unknown {
            ask.entry(m.cluster_id.clone())
                .or_default()
                .insert(m.node_id.clone());
        }
    }
    let client = client.from_height(height);
    let mut views: HashMap<(ClusterId, NodeId), RelayView> = HashMap::new();
    for (cluster, ids) in ask {
        let ids: Vec<NodeId> = ids.into_iter().collect();
        for chunk in ids.chunks(100) {
            let answer = client.relay(cluster.clone(), chunk.to_vec()).await?.value;
            views.extend(
                answer
                    .nodes
                    .into_iter()
                    .map(|v| ((cluster.clone(), v.node_id.clone()), v)),
            );
        }
    }
    let fate = |m: &Member, outcome: &Outcome| match outcome {
        Outcome::OnChain(code) => Fate::Ended(EndedAs::OnChain, *code),
        // Block time was behind, as after a halt: it comes again until it is too old.
        Outcome::Refused(Code::TimestampInFuture) => Fate::Returned,
        Outcome::Refused(code) => Fate::Ended(EndedAs::Refused, Some(*code)),
        Outcome::Unknown => match views.get(&(m.cluster_id.clone(), m.node_id.clone())) {
            None => Fate::Ended(EndedAs::Refused, Some(Code::UnknownNode)),
            Some(v) if v.epoch > m.epoch => {
                Fate::Ended(EndedAs::Superseded, Some(Code::SupersededByRotation))
            }
            Some(v) if v.sequence >= m.sequence => Fate::Ended(EndedAs::OnChain, None),
            Some(_) => Fate::Returned,
        },
    };
    Ok(members.iter().zip(outcomes).map(|(m, o)| fate(m, o)).collect())
}
