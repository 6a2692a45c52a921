//! Settles the members of a transaction that has ended, together with the machine's state, in one commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hpc_chain::code::{self, Verdict};
use hpc_chain::hash::TxHash;
use hpc_chain::query::QueryError;
use hpc_chain::registry::{RegistryClient, response_data};
use hpc_chain::rpc::{Client, ExecResult};
use hpc_chain::settle::{BatchId, End, Inclusion};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::registry::{RegisterAnswer, RelayView, SubmitAnswer};
use sqlx::SqliteConnection;

use super::outcome::{Outcome, of_answer};
use crate::enrol::{self, Registration, RegistrationState};
use crate::ops::{Metrics, ReportLabels};
use crate::registry::Registry;
use crate::spool::{self, EndedAs, Member};
use crate::store::{Store, StoreError};

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

/// Works out how the reports of a transaction ended.
pub(super) async fn of_reports(
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
        End::Included(_) => {
            let outcomes = match included(client, hash).await? {
                Some(result) => submit_outcomes(&result, &members),
                None => vec![Outcome::Unknown; members.len()],
            };
            resolve(client, &members, &outcomes).await?
        }
        End::Consumed { .. } => resolve(client, &members, &vec![Outcome::Unknown; members.len()]).await?,
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

async fn included(client: &RegistryClient, hash: Option<TxHash>) -> Result<Option<ExecResult>, EndingError> {
    let Some(hash) = hash else { return Ok(None) };
    let asked = client
        .chain()
        .endpoints()
        .ask(|c: Client| async move { c.tx(hash).await })
        .await;
    Ok(asked.map_err(QueryError::from)?.map(|tx| tx.result))
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

/// Gives every report its fate; what is unknown is asked of the contract.
async fn resolve(
    client: &RegistryClient,
    members: &[Member],
    outcomes: &[Outcome],
) -> Result<Vec<Fate>, EndingError> {
    let mut ask: BTreeMap<ClusterId, BTreeSet<NodeId>> = BTreeMap::new();
    for (m, outcome) in members.iter().zip(outcomes) {
        if *outcome == Outcome::Unknown {
            ask.entry(m.cluster_id.clone())
                .or_default()
                .insert(m.node_id.clone());
        }
    }
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

/// Works out how the registrations of a transaction ended.
pub(super) async fn of_registrations(
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
    let result = if let End::Included(_) = end {
        included(client, hash).await?
    } else {
        None
    };
    let mut fates = Vec::new();
    for (index, r) in registrations.into_iter().enumerate() {
        let fate = match end {
            _ if r.state != RegistrationState::Sent => RegisterFate::Returned,
            End::Included(_) => {
                let data = result
                    .as_ref()
                    .and_then(|x| response_data(x, index).ok().flatten());
                match data.and_then(|d| serde_json::from_slice::<RegisterAnswer>(&d).ok()) {
                    Some(answer) => RegisterFate::OnChain(answer.epoch),
                    None => on_record(client, &r).await?,
                }
            }
            End::Consumed { .. } => on_record(client, &r).await?,
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

/// Whether the chain has the node with this key since the registration was sent.
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

/// Writes the ends; part of the commit that also stores the machine's state.
pub(super) async fn write(
    conn: &mut SqliteConnection,
    batch: BatchId,
    ending: &Ending,
    height: Option<u64>,
    now_ms: u64,
) -> Result<(), StoreError> {
    match ending {
        Ending::Reports(fates) => {
            for (member, fate) in fates {
                match fate {
                    Fate::Ended(ended, code) => {
                        let end = spool::End {
                            ended: *ended,
                            code: *code,
                            batch: Some(batch.0),
                            height,
                        };
                        spool::end(&mut *conn, member, &end, now_ms).await?;
                    }
                    Fate::Returned => spool::return_member(&mut *conn, member, now_ms).await?,
                }
            }
            spool::unbind(conn, batch.0).await
        }
        Ending::Register(fates) => {
            for (r, fate) in fates {
                match fate {
                    RegisterFate::OnChain(epoch) => {
                        enrol::record_on_chain(&mut *conn, r.id, *epoch, now_ms).await?;
                    }
                    RegisterFate::Refused(code, detail) => {
                        enrol::record_refused(&mut *conn, r.id, *code, detail, now_ms).await?;
                    }
                    RegisterFate::Returned => {}
                }
            }
            enrol::release(conn, batch.0, now_ms).await
        }
        Ending::Nothing => Ok(()),
    }
}

/// Counts the ends, tells the registry about refusals, and gives the nodes that changed on chain.
pub(super) fn announce(
    ending: &Ending,
    registry: &Registry,
    metrics: &Metrics,
) -> BTreeMap<ClusterId, Vec<NodeId>> {
    let mut touched: BTreeMap<ClusterId, Vec<NodeId>> = BTreeMap::new();
    match ending {
        Ending::Reports(fates) => {
            for (m, fate) in fates {
                let (end, code) = match fate {
                    Fate::Ended(EndedAs::OnChain, code) => ("on_chain", *code),
                    Fate::Ended(EndedAs::Refused, code) => ("refused", *code),
                    Fate::Ended(EndedAs::Superseded, code) => ("superseded", *code),
                    Fate::Returned => ("returned", None),
                };
                if let Fate::Ended(EndedAs::Refused, Some(code)) = fate {
                    tracing::warn!(cluster = %m.cluster_id, node = %m.node_id, sequence = m.sequence, %code,
                        "report refused by the chain; {}", code.remedy());
                    registry.refused(&m.cluster_id, &m.node_id, *code, m.sequence);
                }
                let labels = ReportLabels {
                    end,
                    code: code.map_or("", Code::as_str),
                };
                metrics.reports.get_or_create(&labels).inc();
                touched
                    .entry(m.cluster_id.clone())
                    .or_default()
                    .push(m.node_id.clone());
            }
        }
        Ending::Register(fates) => {
            for (r, fate) in fates {
                match fate {
                    RegisterFate::OnChain(epoch) => {
                        tracing::info!(cluster = %r.cluster_id, node = %r.node_id, epoch, "node registered on chain");
                        touched
                            .entry(r.cluster_id.clone())
                            .or_default()
                            .push(r.node_id.clone());
                    }
                    RegisterFate::Refused(code, detail) => {
                        tracing::warn!(cluster = %r.cluster_id, node = %r.node_id, %code, "registration refused: {detail}");
                    }
                    RegisterFate::Returned => {}
                }
            }
        }
        Ending::Nothing => {}
    }
    touched
}
