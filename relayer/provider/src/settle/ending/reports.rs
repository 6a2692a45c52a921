use std::collections::{BTreeMap, BTreeSet, HashMap};

use hpc_chain::code::{self, Verdict};
use hpc_chain::hash::TxHash;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_chain::rpc::ExecResult;
use hpc_chain::settle::{End, Inclusion};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{RelayView, SubmitAnswer};

use super::super::outcome::{Outcome, of_answer};
use super::{Ending, EndingError, Fate, included};
use crate::spool::{EndedAs, Member};

/// Works out how the reports of a transaction ended.
pub(in crate::settle) async fn of_reports(
    client: &RegistryClient,
    members: Vec<Member>,
    hash: Option<TxHash>,
    end: &End,
) -> Result<Ending, EndingError> {
    let fates = match end {
        End::Included(inclusion) => {
            let outcomes = match included(client, hash, inclusion.height).await? {
                // Which cluster a lost one was of, and so where the groups of the answer end, is not certain.
                Some(result) if members.iter().all(Member::is_known) => submit_outcomes(&result, &members),
                _ => vec![Outcome::Unknown; members.len()],
            };
            resolve(client, &members, &outcomes, inclusion.height).await?
        }
        End::Consumed { height, .. } => {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use serde_json::{Value, json};

    use super::*;
    use crate::fake_chain::{self, Answer, chain};
    use crate::registry::scene::view;

    fn member(node: &str, epoch: u64) -> Member {
        Member {
            recorded: epoch == 0,
            ..Member::of_node(node, epoch, 5)
        }
    }

    #[tokio::test]
    async fn where_an_item_is_not_known_the_contract_tells_of_the_others_and_not_their_numbers() {
        // The first one was refused, and the chain has node-a at 1 and node-b at 5.
        let expired = Code::TimestampExpired;
        let answer = move |question: &Value| {
            if question.get("tx").is_some() {
                let refused = vec![(0, expired.number())];
                let answer = SubmitAnswer {
                    refused,
                    ..SubmitAnswer::default()
                };
                return Answer::Took(b"tx", serde_json::to_value(answer).unwrap());
            }
            assert!(question.get("relay").is_some(), "{question}");
            let other = RelayView {
                node_id: "node-b".parse().unwrap(),
                sequence: 5,
                ..view()
            };
            Answer::Json(json!({ "nodes": [view(), other], "block": fake_chain::block() }))
        };
        let chain = chain(Arc::new(AtomicU64::new(7)), answer).await;
        let client = RegistryClient::new(chain, "wasm1contract");
        let hash = TxHash::of(b"tx");
        let end = End::Included(Inclusion {
            hash,
            height: 7,
            code: 0,
            codespace: String::new(),
            log: String::new(),
            gas_used: 0,
        });
        let fates = async |members: Vec<Member>| -> Vec<Fate> {
            match of_reports(&client, members, Some(hash), &end).await.unwrap() {
                Ending::Reports(fates) => fates.into_iter().map(|(_, fate)| fate).collect(),
                other => panic!("{other:?}"),
            }
        };
        let on_chain = Fate::Ended(EndedAs::OnChain, None);
        assert_eq!(
            fates(vec![member("node-a", 1), member("node-b", 1)]).await,
            [Fate::Ended(EndedAs::Refused, Some(expired)), on_chain]
        );
        let with_one_unknown = vec![member("node-a", 1), member("node-a", 0), member("node-b", 1)];
        let told = fates(with_one_unknown).await;
        assert_eq!((told[0], told[2]), (Fate::Returned, on_chain));
    }
}
