use cosmwasm_std::{Addr, Deps, Env};
use hpc_schema::cluster::Aggregate;
use hpc_schema::id::ClusterId;
use hpc_schema::node::lifecycle::effective;
use hpc_schema::registry::{AggregateAnswer, Cluster, ClusterAnswer, ClustersAnswer};
use hpc_schema::time::UnixSeconds;

use super::{ClusterHot, ClusterInfo, cold, gpu_types};
use crate::config::params;
use crate::config::query::{block, now};
use crate::error::ContractError;
use crate::meter::Meter;
use crate::node::page::{HotPage, SectionPage};

/// Clusters looked at in one call of a filtered list.
const MAX_SCAN: usize = 500;

/// Above this many pages the effective sums are left out of an answer.
const MAX_EFFECTIVE_PAGES: u16 = 256;

/// Length of a page of answers: 30 unless asked, at most 100.
pub(crate) fn limit(asked: Option<u32>) -> usize {
    usize::try_from(asked.unwrap_or(30).clamp(1, 100)).unwrap_or(100)
}

fn view(id: ClusterId, info: ClusterInfo, hot: &ClusterHot) -> Cluster {
    Cluster {
        cluster_id: id,
        owner: info.owner.into_string(),
        proposed_owner: info.proposed_owner.map(Addr::into_string),
        operators: info.operators.into_iter().map(Addr::into_string).collect(),
        name: info.name,
        region: info.region,
        gateway_endpoint: info.gateway_endpoint,
        task_public_key: info.task_public_key,
        job_ids: info.job_ids,
        active: hot.active,
        pages: hot.pages(),
        created_at: info.created_at,
        deposit: info.deposit,
    }
}

pub(crate) fn cluster(deps: Deps<'_>, env: &Env, id: ClusterId) -> Result<ClusterAnswer, ContractError> {
    let info = ClusterInfo::load(deps.storage, &id)?;
    let hot = ClusterHot::load(deps.storage, &id)?;
    let types = gpu_types::load(deps.storage, hot.index);
    Ok(ClusterAnswer {
        cluster: view(id, info, &hot),
        aggregate: hot.aggregate.view(hot.active, &types),
        block: block(env),
    })
}

pub(crate) fn clusters(
    deps: Deps<'_>,
    env: &Env,
    owner: Option<&str>,
    start_after: Option<&str>,
    asked: Option<u32>,
) -> Result<ClustersAnswer, ContractError> {
    let (meter, limit) = (Meter::new(deps.storage), limit(asked));
    let mut clusters = Vec::new();
    let mut next = None;
    let mut seen: Option<ClusterId> = None;
    for (scanned, entry) in cold::list(&meter, start_after).enumerate() {
        let (id, info) = entry?;
        if clusters.len() == limit || scanned == MAX_SCAN || seen.is_some() && meter.is_spent() {
            next = seen.map(String::from);
            break;
        }
        seen = Some(id.clone());
        if owner.is_none_or(|owner| info.owner.as_str() == owner) {
            let hot = ClusterHot::load(&meter, &id)?;
            clusters.push(view(id, info, &hot));
        }
    }
    Ok(ClustersAnswer {
        clusters,
        next,
        block: block(env),
    })
}

pub(crate) fn aggregate(deps: Deps<'_>, env: &Env, id: ClusterId) -> Result<AggregateAnswer, ContractError> {
    let hot = ClusterHot::load(deps.storage, &id)?;
    let types = gpu_types::load(deps.storage, hot.index);
    let effective = if hot.pages() <= MAX_EFFECTIVE_PAGES {
        Some(recount(deps, env, &hot)?.view(hot.active, &types))
    } else {
        None
    };
    Ok(AggregateAnswer {
        cluster_id: id,
        recorded: hot.aggregate.view(hot.active, &types),
        recorded_at: UnixSeconds(u64::from(hot.recorded_at)),
        effective,
        block: block(env),
    })
}

/// The sums over effective records, from the pages.
fn recount(deps: Deps<'_>, env: &Env, hot: &ClusterHot) -> Result<Aggregate, ContractError> {
    let params = params::load(deps.storage)?;
    let mut sums = Aggregate::default();
    for page in 0..hot.pages() {
        let records = HotPage::load(deps.storage, hot.index, page)?;
        let sections = SectionPage::load(deps.storage, hot.index, page)?;
        for (slot, record) in records.records() {
            sums.add(&effective(record, &params, now(env)), sections.gpu_type(slot));
        }
    }
    Ok(sums)
}
