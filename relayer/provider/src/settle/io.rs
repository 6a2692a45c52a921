//! The endpoints' newest blocks, as inputs of the settlement machine and for everybody else.

use std::collections::BTreeSet;
use std::time::Instant;

use hpc_chain::registry::RegistryClient;
use hpc_chain::settle::{EndpointId, Input};
use hpc_schema::time::UnixSeconds;

use super::driver::DriverError;
use crate::config::Config;
use crate::ops::Metrics;
use crate::registry::{Registry, Tip};

/// How far back the first look at an endpoint goes, to learn the block time.
const LOOK_BACK: u64 = 20;

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
