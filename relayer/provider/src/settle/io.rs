//! What the settlement machine asks of the chain: one function a question, answers as its inputs.

use std::collections::BTreeSet;
use std::time::Instant;

use futures_util::future::join_all;
use hpc_chain::hash::TxHash;
use hpc_chain::registry::RegistryClient;
use hpc_chain::rpc::{Client, RpcError, TxAnswer};
use hpc_chain::settle::{CheckTx, EndpointId, Inclusion, Input};
use hpc_schema::time::UnixSeconds;

use super::driver::DriverError;
use crate::config::Config;
use crate::ops::Metrics;
use crate::registry::{Registry, Tip};

/// How far back the first look at an endpoint goes, to learn the block time.
const LOOK_BACK: u64 = 20;
/// Text of a result that is worth keeping.
const MAX_LOG: usize = 1024;

/// Which endpoints have been seen.
#[derive(Debug, Default)]
pub(super) struct Heads {
    seen: BTreeSet<EndpointId>,
    answering: usize,
}

impl Heads {
    /// Whether any endpoint answered last time.
    pub(super) fn reachable(&self) -> bool {
        self.answering > 0
    }
}

/// The newest block of every endpoint.
pub(super) async fn heads(
    known: &mut Heads,
    client: &RegistryClient,
    config: &Config,
    registry: &Registry,
    metrics: &Metrics,
) -> Result<Vec<Input>, DriverError> {
    let endpoints = client.chain().endpoints();
    let asked = Instant::now();
    let answers = endpoints.heads().await;
    let latency_ms = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (mut inputs, mut wrong) = (Vec::new(), None);
    known.answering = 0;
    for head in answers {
        let endpoint = head.endpoint;
        let status = match head.status {
            Ok(status) if status.chain_id == config.chain.id => status,
            Ok(status) => {
                wrong = Some(status.chain_id);
                inputs.push(Input::EndpointLost { endpoint });
                continue;
            }
            Err(e) => {
                tracing::debug!(error = %e, "an endpoint does not answer");
                inputs.push(Input::EndpointLost { endpoint });
                continue;
            }
        };
        known.answering += 1;
        if known.seen.insert(endpoint)
            && let Some(client) = endpoints.get(endpoint)
        {
            let before = status
                .height
                .saturating_sub(LOOK_BACK)
                .max(status.earliest_height)
                .max(1);
            if let Ok(block) = client.block(Some(before)).await {
                inputs.push(Input::Head {
                    endpoint,
                    height: before,
                    block_time_ms: block.time_ms,
                });
            }
        }
        inputs.push(Input::Head {
            endpoint,
            height: status.height,
            block_time_ms: status.block_time_ms,
        });
        let time = UnixSeconds(status.block_time_ms / 1000);
        registry.set_tip(Tip {
            height: status.height,
            time,
            latency_ms: Some(latency_ms),
        });
        metrics.chain_height.set(status.height);
        metrics.chain_latency_ms.set(latency_ms);
    }
    match wrong {
        Some(found) if known.answering == 0 => Err(DriverError::WrongChain {
            found,
            wanted: config.chain.id.clone(),
        }),
        _ => Ok(inputs),
    }
}

/// Sends the bytes to these endpoints, all at once.
pub(super) async fn broadcast(
    client: &RegistryClient,
    hash: TxHash,
    bytes: &[u8],
    endpoints: &[EndpointId],
) -> Vec<Input> {
    let sends = endpoints.iter().map(|endpoint| async move {
        let answer = match client.chain().endpoints().get(*endpoint) {
            None => CheckTx::Unclear,
            Some(client) => match client.broadcast_tx_sync(bytes).await {
                Ok(a) => CheckTx::Answered {
                    verdict: a.verdict,
                    code: a.code,
                    codespace: a.codespace,
                    log: cut(a.log),
                },
                Err(e) => {
                    tracing::debug!(error = %e, "whether a transaction arrived is not known");
                    CheckTx::Unclear
                }
            },
        };
        Input::CheckTx {
            endpoint: *endpoint,
            hash,
            answer,
        }
    });
    join_all(sends).await
}

/// Looks a transaction up at every endpoint: an index may lag.
pub(super) async fn find(client: &RegistryClient, hash: TxHash) -> Option<Input> {
    let asks = client
        .chain()
        .endpoints()
        .iter()
        .map(|(_, client)| client.tx(hash));
    let answers: Vec<Result<Option<TxAnswer>, RpcError>> = join_all(asks).await;
    let mut asked = false;
    for answer in answers {
        match answer {
            Ok(Some(tx)) => {
                return Some(Input::Found(Inclusion {
                    hash,
                    height: tx.height,
                    code: tx.result.code,
                    codespace: tx.result.codespace,
                    log: cut(tx.result.log),
                }));
            }
            Ok(None) => asked = true,
            Err(e) => tracing::debug!(error = %e, "a transaction cannot be looked up"),
        }
    }
    asked.then_some(Input::NotFound { hash })
}

/// Reads the account.
pub(super) async fn account(client: &RegistryClient, address: &str) -> Option<Input> {
    match client.chain().account(address).await {
        Ok(answer) => Some(match answer.value {
            Some(account) => Input::Account {
                height: answer.height,
                account_number: account.number,
                sequence: account.sequence,
            },
            None => Input::AccountUnknown {
                height: answer.height,
            },
        }),
        Err(e) => {
            tracing::debug!(error = %e, "the account cannot be read");
            None
        }
    }
}

/// Reads the blocks for a transaction. Heights that are pruned count as read.
pub(super) async fn scan(client: &RegistryClient, hash: TxHash, from: u64, to: u64) -> Option<Input> {
    let mut inclusions = Vec::new();
    for height in from..=to {
        match client
            .chain()
            .endpoints()
            .ask(|c: Client| in_block(c, hash, height))
            .await
        {
            Ok(found) => inclusions.extend(found),
            Err(RpcError::Response { data, .. }) if hpc_chain::code::pruned_below(&data).is_some() => {}
            Err(e) => {
                tracing::debug!(height, error = %e, "a block cannot be read");
                return None;
            }
        }
    }
    Some(Input::Scanned {
        hash,
        from,
        to,
        inclusions,
    })
}

async fn in_block(client: Client, hash: TxHash, height: u64) -> Result<Option<Inclusion>, RpcError> {
    let block = client.block(Some(height)).await?;
    let Some(index) = block.txs.iter().position(|tx| TxHash::of(tx) == hash) else {
        return Ok(None);
    };
    let results = client.block_results(height).await?;
    Ok(results.into_iter().nth(index).map(|r| Inclusion {
        hash,
        height,
        code: r.code,
        codespace: r.codespace,
        log: cut(r.log),
    }))
}

fn cut(mut log: String) -> String {
    if log.len() > MAX_LOG {
        let mut at = MAX_LOG;
        while !log.is_char_boundary(at) {
            at -= 1;
        }
        log.truncate(at);
    }
    log
}
