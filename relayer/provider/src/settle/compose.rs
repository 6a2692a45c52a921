use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_chain::keys::{KeyError, Signer};
use hpc_chain::msg::{Any, EncodeError};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::node::NodeState;
use hpc_schema::registration::NodeIdentity;
use hpc_schema::registry::{ExecuteMsg, Params, ReportGroup};
use hpc_schema::report::Report;
use hpc_schema::report::batch::{EncodeError as BatchError, Outgoing, encode};
use hpc_schema::time::{Rfc3339, UnixSeconds};
use tokio::task::yield_now;

use super::beside::Beside;
use super::driver::Driver;
use super::duty::{pages, would_step};
use super::fit::{CHECK_AGAIN, Load, ReportLoad, STEP};
use super::plan::{Decision, plan};
use super::queue::{self, A_STRETCH, Queue};
use crate::clock::{self, NoRandomness};
use crate::enrol::Registration;
use crate::registry::{Node, Registry};
use crate::spool::{self, Member};
use crate::store::StoreError;

/// A message could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ComposeError {
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A message cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Reports do not fit together.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A stored report cannot be read.
    #[error("a stored report of node {0} cannot be read")]
    Report(String),
    /// The operator key refuses.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No nonce.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// A batch of reports as a message.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) message: Any,
    /// In the order of the items.
    pub(super) members: Vec<Member>,
    /// What its gas depends on.
    pub(super) load: Load,
    /// Gas beyond it, for what may change until the batch is included.
    pub(super) margin: u64,
}

/// The reports that are due now, if any are; their pages are this key's from here on. `looked`: what waits, if that has just been
/// looked at.
pub(super) async fn reports(
    driver: &Driver,
    looked: Option<Queue>,
    now_ms: u64,
) -> Result<Option<Reports>, ComposeError> {
    let (store, registry) = (&driver.store, &driver.registry);
    let signer = &driver.signers.name;
    let limits = driver.limits();
    let waits = match looked {
        Some(waits) => waits,
        None => queue::read(store, registry, &driver.backlog, limits.max_size, now_ms).await?,
    };
    let free = waits
        .without(&driver.claims.others(signer))
        .past(&driver.apart, clock::steady());
    let Queue { waiting, of, .. } = free;
    let Decision::Send(chosen) = plan(&waiting, &limits, now_ms) else {
        return Ok(None);
    };
    let pages = chosen.iter().filter_map(|i| waiting.get(*i));
    if !driver
        .claims
        .claim(signer, pages.map(|w| (w.cluster_id.clone(), w.page)).collect())
    {
        return Ok(None);
    }
    let mut items = Vec::new();
    let chosen: Vec<_> = chosen.iter().filter_map(|i| of.get(*i)).collect();
    let nodes: Vec<_> = chosen.iter().map(|(m, _)| (&m.cluster_id, &m.node_id)).collect();
    let mut conn = store.reader().acquire().await.map_err(StoreError::from)?;
    let found = spool::waiting_of(&mut conn, &nodes).await?;
    drop(conn);
    if found.broken {
        driver.backlog.mend(store).await?;
    }
    let mut found: HashMap<_, _> = found
        .rows
        .into_iter()
        .map(|found| ((found.0.cluster_id.clone(), found.0.node_id.clone()), found))
        .collect();
    for (at, (meta, node)) in chosen.into_iter().enumerate() {
        if at % A_STRETCH == 0 {
            yield_now().await;
        }
        // A newer one may have come since; it is as good.
        let Some((member, section)) = found.remove(&(meta.cluster_id.clone(), meta.node_id.clone())) else {
            continue;
        };
        if member.epoch != node.chain.epoch {
            continue;
        }
        let report =
            Report::decode(&member.report).map_err(|_| ComposeError::Report(meta.node_id.to_string()))?;
        let section = section.filter(|s| report.section_digest != node.section_digest && report.covers(s));
        items.push((member, report, section, node));
    }
    if items.is_empty() {
        return Ok(None);
    }
    // Agents wait for nothing of all this.
    yield_now().await;
    let mut groups = Vec::new();
    for group in items.chunk_by(|a, b| a.0.cluster_id == b.0.cluster_id) {
        let Some(first) = group.first() else { continue };
        let outgoing: Vec<Outgoing<'_>> = group
            .iter()
            .map(|(member, report, section, node)| Outgoing {
                page: node.chain.page,
                slot: node.chain.slot,
                report,
                signature: &member.signature,
                section: section.as_deref(),
            })
            .collect();
        let cluster_id: ClusterId = first.0.cluster_id.clone();
        groups.push(ReportGroup {
            cluster_id,
            reports: STANDARD.encode(encode(&outgoing)?),
        });
    }
    let sender = &driver.signers.address;
    let message = driver
        .client
        .execute(sender, &ExecuteMsg::SubmitReports { groups }, &[])?;
    yield_now().await;
    // As long as it lives, and a few seconds for clocks.
    let until = now_ms / 1000 + driver.machine.lifetime_ms / 1000 + 10;
    let params = registry.params();
    let nodes: Vec<_> = items.iter().map(|i| i.3).collect();
    let mut beside = Beside::of(&nodes, until);
    registry.each(|node| beside.see(node, &params)).await;
    // A bad signature in the batch costs every item a second check.
    let margin = beside
        .stepping()
        .saturating_mul(STEP)
        .saturating_add(count(items.len()).saturating_mul(CHECK_AGAIN));
    let carried: Vec<_> = items
        .iter()
        .map(|(_, _, section, node)| (*node, section.as_ref().map(Vec::len)))
        .collect();
    let load = load(&carried, beside.slots(), &params, UnixSeconds(now_ms / 1000));
    Ok(Some(Reports {
        message,
        members: items.into_iter().map(|i| i.0).collect(),
        load,
        margin,
    }))
}

/// What the gas of reports of these nodes depends on, each with the length of the section that travels with it; their pages
/// have so many slots more.
fn load(carried: &[(&Arc<Node>, Option<usize>)], others: u64, params: &Params, now: UnixSeconds) -> Load {
    let sections: Vec<_> = carried
        .iter()
        .filter_map(|(n, len)| Some((*n, (*len)?)))
        .collect();
    let stepping: Vec<_> = carried
        .iter()
        .map(|(n, _)| *n)
        .filter(|n| n.chain.recorded_state != NodeState::Active || would_step(n, params, now))
        .collect();
    Load::Reports(ReportLoad {
        pages: pages(carried.iter().map(|(n, _)| *n)),
        others,
        reports: count(carried.len()),
        section_pages: pages(sections.iter().map(|(n, _)| *n)),
        sections: count(sections.len()),
        section_bytes: count(sections.iter().map(|(_, len)| *len).sum()),
        stepped_pages: pages(stepping.iter().copied()),
        steps: count(stepping.len()),
    })
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// The signed registration of a node, or why there can be none.
pub(super) async fn registration(
    r: &Registration,
    registry: &Registry,
    operator: &dyn Signer,
    prefix: &str,
    now: UnixSeconds,
    nonce: [u8; 32],
) -> Result<Result<ExecuteMsg, (Code, String)>, ComposeError> {
    let Some(cluster) = registry.cluster(&r.cluster_id) else {
        let what = format!("cluster {} is not on chain", r.cluster_id);
        return Ok(Err((Code::UnknownCluster, what)));
    };
    let address = operator.address(prefix)?;
    if cluster.owner != address && !cluster.operators.contains(&address) {
        let what =
            format!("the gateway's operator key {address} is neither owner nor operator of the cluster");
        return Ok(Err((Code::NotAuthorized, what)));
    }
    let Ok(registration_timestamp) = Rfc3339::from_unix(now.0, 0) else {
        return Ok(Err((
            Code::RegistrationExpired,
            "the gateway's clock is wrong".into(),
        )));
    };
    // Of a rotation the old key has signed the nonce already.
    let (registration_nonce, rotation_signature) = match &r.rotation {
        Some((nonce, signature)) => (nonce.clone(), Some(signature.clone())),
        None => (STANDARD.encode(nonce), None),
    };
    let node_identity = NodeIdentity {
        node_id: r.node_id.clone(),
        cluster_id: r.cluster_id.clone(),
        provider_address: cluster.owner.clone(),
        agent_pubkey: r.public_key,
        hostname: r.hostname.clone(),
        hardware_fingerprint: r.hardware_fingerprint.clone(),
        registration_nonce,
        registration_timestamp,
    };
    let (chain_id, contract) = (registry.chain_id(), registry.contract());
    let signed = operator.sign_registration(prefix, chain_id, contract, &node_identity);
    match signed.await {
        Ok(signature) => Ok(Ok(ExecuteMsg::RegisterNode {
            node_identity,
            provider_signature: STANDARD.encode(signature),
            provider_pubkey: STANDARD.encode(operator.public_key()),
            rotation_signature,
        })),
        Err(KeyError::Field(e)) => Ok(Err((Code::InvalidField, e.to_string()))),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use hpc_schema::registry::RelayView;

    use super::*;
    use crate::registry::scene::view;

    #[test]
    fn what_reports_carry_is_told_by_pages_and_nodes() {
        let registry = Registry::new("c", "k");
        let cluster = "hpc-cluster-1".parse().unwrap();
        for (name, page, state, last) in [
            ("node-a", 0, NodeState::Active, 1_000),
            ("node-b", 0, NodeState::Offline, 100),
            ("node-c", 2, NodeState::Active, 1_000),
            // Its state has lapsed.
            ("node-d", 2, NodeState::Active, 100),
            ("node-e", 3, NodeState::Active, 1_000),
        ] {
            let node = RelayView {
                node_id: name.parse().unwrap(),
                page,
                recorded_state: state,
                last_heartbeat: UnixSeconds(last),
                ..view()
            };
            registry.set_node(&cluster, node, 1, UnixSeconds(0));
        }
        let nodes = registry.nodes();
        let of = |name: &str, len| (nodes.iter().find(|n| n.node_id.as_str() == name).unwrap(), len);
        let carried = [
            of("node-a", Some(50)),
            of("node-b", Some(70)),
            of("node-c", None),
            of("node-d", None),
            of("node-e", None),
        ];
        let told = load(&carried, 7, &Params::default(), UnixSeconds(1_010));
        let wanted = ReportLoad {
            pages: 3,
            others: 7,
            reports: 5,
            section_pages: 1,
            sections: 2,
            section_bytes: 120,
            stepped_pages: 2,
            steps: 2,
        };
        assert_eq!(told, Load::Reports(wanted));
    }
}
