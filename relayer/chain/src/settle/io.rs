//! Carries out the machine's questions over RPC. Shared by the daemon's durable driver and by [`crate::send`]: what is
//! stored, signed and settled is theirs, what is asked is the same for both.

use std::sync::atomic::{AtomicU64, Ordering};

use super::action::Action;
use super::input::Input;
use super::state::{Outstanding, State};
use super::types::{CheckTx, EndpointId, Inclusion};
use crate::code::{self, Class};
use crate::hash::TxHash;
use crate::query::{Chain, QueryError};
use crate::rpc::{Block, Client, ExecResult, RpcError, TxAnswer};

/// Text of a result that is kept.
const MAX_LOG: usize = 1_024;
/// Blocks that an index of transactions may be behind, and for which an endpoint is asked again that refuses or is behind.
const LAG: u64 = 20;
/// Blocks read back at the start to learn the block time.
const LOOK_BACK: u64 = 10;

/// A transaction's result, cut to what the machine keeps.
#[must_use]
pub fn inclusion(tx: &TxAnswer) -> Inclusion {
    Inclusion {
        hash: tx.hash,
        height: tx.height,
        code: tx.result.code,
        codespace: tx.result.codespace.clone(),
        log: tx.result.log.chars().take(MAX_LOG).collect(),
        gas_used: tx.result.gas_used,
    }
}

/// The newest block of every endpoint, and which endpoints do not answer. Endpoints of another chain count as lost.
pub async fn heads(chain: &Chain, chain_id: &str) -> Vec<Input> {
    let heads = chain.endpoints().heads().await;
    let input = |head: crate::rpc::Head| match head.status {
        Ok(s) if s.chain_id == chain_id && s.height > 0 => Input::Head {
            endpoint: head.endpoint,
            height: s.height,
            block_time_ms: s.block_time_ms,
        },
        Ok(_) | Err(_) => Input::EndpointLost {
            endpoint: head.endpoint,
        },
    };
    heads.into_iter().map(input).collect()
}

/// One older block, so that the block time is known before the first signature. Feed it before [`heads`]; `None` on a chain
/// too young, or where the block was pruned.
pub async fn older_head(chain: &Chain) -> Option<Input> {
    let client = chain.endpoints().best()?.clone();
    let status = client.status().await.ok()?;
    let height = status
        .height
        .saturating_sub(LOOK_BACK)
        .max(status.earliest_height)
        .max(1);
    if height >= status.height {
        return None;
    }
    let block = client.block(Some(height)).await.ok()?;
    let (endpoint, _) = chain
        .endpoints()
        .iter()
        .find(|(_, c)| c.name() == client.name())?;
    Some(Input::Head {
        endpoint,
        height,
        block_time_ms: block.time_ms,
    })
}

/// Carries out a question of the machine; the answers are its next inputs. A question that could not be answered gives
/// none: the machine asks again at a later height. Actions that only a driver can carry out give none either.
pub async fn perform(chain: &Chain, address: &str, state: &State, action: &Action) -> Vec<Input> {
    match action {
        Action::Broadcast { hash, endpoints } => match state.outstanding() {
            Some(tx) if tx.hash == *hash => broadcast(chain, tx, endpoints).await,
            _ => Vec::new(),
        },
        Action::QueryTx { hash } => {
            let (hash, endpoints) = (*hash, chain.endpoints());
            // Before its sequence is used nothing depends on the answer, and it is asked again at the next block: one is enough.
            let asked = if state.is_used() {
                endpoints.find_tx(hash).await
            } else {
                endpoints.ask(|c: Client| async move { c.tx(hash).await }).await
            };
            match asked {
                Ok(Some(tx)) => vec![Input::Found(inclusion(&tx))],
                Ok(None) => vec![Input::NotFound { hash }],
                Err(e) => lost(&e),
            }
        }
        Action::QueryAccount => match chain.account(address).await {
            Ok(at) => {
                vec![
                    at.value
                        .map_or(Input::AccountUnknown { height: at.height }, |a| Input::Account {
                            height: at.height,
                            account_number: a.number,
                            sequence: a.sequence,
                        }),
                ]
            }
            Err(e) => lost(&e),
        },
        Action::ScanBlocks { hash, from, to } => match scan(chain, *hash, *from, *to).await {
            Ok(scanned) => vec![scanned],
            Err(e) => lost(&e),
        },
        Action::Persist
        | Action::Sign(_)
        | Action::QueryNodeSequences { .. }
        | Action::Finished { .. }
        | Action::Busy { .. }
        | Action::Alarm(_) => Vec::new(),
    }
}

fn lost(e: &dyn std::error::Error) -> Vec<Input> {
    tracing::debug!(error = %e, "question to the chain not answered; it is asked again at the next height");
    Vec::new()
}

/// The same bytes to each of these endpoints, all at once.
async fn broadcast(chain: &Chain, tx: &Outstanding, endpoints: &[EndpointId]) -> Vec<Input> {
    let (hash, account_number) = (tx.hash, tx.account_number);
    let bytes: std::sync::Arc<[u8]> = tx.bytes.as_slice().into();
    let mut tasks = tokio::task::JoinSet::new();
    for endpoint in endpoints.iter().copied() {
        let Some(client) = chain.endpoints().get(endpoint).cloned() else {
            continue;
        };
        let bytes = std::sync::Arc::clone(&bytes);
        tasks.spawn(async move {
            let answer = match client.broadcast_tx_sync(&bytes).await {
                Ok(a) if code::is_checked_too_early(&a.verdict, &a.log, account_number) => {
                    tracing::debug!(%hash, endpoint = client.name(), "has seen no block since it came up: {}", a.log);
                    CheckTx::Unclear
                }
                Ok(a) => {
                    let log = a.log.chars().take(MAX_LOG).collect();
                    CheckTx::Answered {
                        verdict: a.verdict,
                        code: a.code,
                        codespace: a.codespace,
                        log,
                    }
                }
                Err(e) => {
                    tracing::debug!(%hash, error = %e, "broadcast without an answer");
                    CheckTx::Unclear
                }
            };
            Input::CheckTx {
                endpoint,
                hash,
                answer,
            }
        });
    }
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.extend(done.ok());
    }
    answers
}

/// Reads the blocks one by one, but for those that nobody has any more: [`Input::Scanned`].
async fn scan(chain: &Chain, hash: TxHash, from: u64, to: u64) -> Result<Input, QueryError> {
    let (mut found, mut gone, mut unread) = (Vec::new(), Vec::new(), false);
    let mut height = from;
    while height <= to {
        let at = height;
        let lowest = &AtomicU64::new(u64::MAX);
        let asked = chain
            .endpoints()
            .ask(|c: Client| async move {
                let block = c.kept_block(at).await;
                if let Err(RpcError::NotKept { reason, .. }) = &block {
                    lowest.fetch_min(code::pruned_below(reason).unwrap_or(u64::MAX), Ordering::Relaxed);
                }
                block
            })
            .await;
        let block = match asked {
            Ok(block) => block,
            Err(e @ RpcError::NotKept { .. }) => {
                if !e.unheard().is_empty() && may_come(chain, at).await? {
                    return Err(e.into());
                }
                unread = true;
                height = lowest.load(Ordering::Relaxed).min(to.saturating_add(1));
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        match results_of(chain, &block, hash, at).await {
            Ok(results) => found.extend(results.into_iter().map(|result| Inclusion {
                hash,
                height: at,
                code: result.code,
                codespace: result.codespace,
                log: result.log.chars().take(MAX_LOG).collect(),
                gas_used: result.gas_used,
            })),
            Err(QueryError::Rpc(e @ RpcError::NotKept { .. })) => {
                let all_said = e.unheard().is_empty();
                match late(chain, hash, at, all_said).await? {
                    Late::Found(inclusion) => found.push(inclusion),
                    Late::MayCome => return Err(e.into()),
                    Late::Gone => {
                        tracing::debug!(tx = %hash, height = at, error = %e, "it is in a block whose results no endpoint keeps");
                        gone.push(at);
                    }
                }
            }
            Err(e) => return Err(e),
        }
        height = height.saturating_add(1);
    }
    Ok(Input::Scanned {
        hash,
        from,
        to,
        inclusions: found,
        gone,
        unread,
    })
}

/// What indexes have of a transaction in a block whose results no endpoint keeps.
enum Late {
    Found(Inclusion),
    /// There is an index, which may only be behind, or an endpoint that did not say.
    MayCome,
    /// There is none, or it does not go back so far: it was switched on later.
    Gone,
}

/// `all_said`: every endpoint has said that it keeps no results of the block.
async fn late(chain: &Chain, hash: TxHash, at: u64, all_said: bool) -> Result<Late, QueryError> {
    let all_said = match chain.endpoints().find_tx(hash).await {
        Ok(Some(tx)) => return Ok(Late::Found(inclusion(&tx))),
        Ok(None) => false,
        Err(RpcError::NotKept { unheard, .. }) => all_said && unheard.is_empty(),
        Err(e) if e.class() == Class::Rejected => false,
        Err(e) => return Err(e.into()),
    };
    let waits = !all_said && may_come(chain, at).await?;
    Ok(if waits { Late::MayCome } else { Late::Gone })
}

/// Whether what nobody has of a block may still come, from an index or an endpoint that is behind or refuses for a moment.
async fn may_come(chain: &Chain, at: u64) -> Result<bool, QueryError> {
    let status = chain
        .endpoints()
        .ask(|c: Client| async move { c.status().await })
        .await?;
    // Whoever is asked first may stand still.
    let highest = status.height.max(chain.endpoints().highest());
    Ok(highest < at.saturating_add(LAG))
}

/// The result of a transaction out of its block, for where no index has it; `None` if it is not in it.
///
/// # Errors
/// If the block or its results cannot be had.
pub async fn result_in_block(
    chain: &Chain,
    hash: TxHash,
    height: u64,
) -> Result<Option<ExecResult>, QueryError> {
    let block = chain
        .endpoints()
        .ask(|c: Client| async move { c.kept_block(height).await })
        .await?;
    // Of a block that has it twice the first counts: the second failed before it ran.
    Ok(results_of(chain, &block, hash, height).await?.into_iter().next())
}

/// The results of a transaction in its block, which is asked for them only if it has it.
async fn results_of(
    chain: &Chain,
    block: &Block,
    hash: TxHash,
    at: u64,
) -> Result<Vec<ExecResult>, QueryError> {
    let places: Vec<_> = (0..)
        .zip(&block.txs)
        .filter(|(_, tx)| TxHash::of(tx) == hash)
        .collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let results = chain
        .endpoints()
        .ask(|c: Client| async move { c.kept_results(at).await })
        .await?;
    let result = |index: usize| {
        results.get(index).cloned().ok_or(QueryError::Malformed {
            path: "block_results",
            reason: format!("no result for transaction {index} of block {at}"),
        })
    };
    places.into_iter().map(|(index, _)| result(index)).collect()
}
