//! Queries for one node, for named ones, and for all that meet conditions.

use cosmwasm_std::{Deps, Env};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::HotRecord;
use hpc_schema::registry::{
    JobsAnswer, JobsStatus, NodeAnswer, NodeFilter, NodeJobs, NodesAnswer, RelayAnswer,
};

use super::resolve;
use super::view::{PageReading, Reading};
use crate::cluster::query::limit;
use crate::cluster::{ClusterHot, ClusterInfo, cold};
use crate::config::params;
use crate::config::query::{block, now};
use crate::error::{ContractError, refuse};
use crate::keys::Place;

/// Pages and clusters looked at in one call of a filtered list.
const MAX_PAGES: u32 = 64;
/// Nodes named in one query.
const MAX_NAMED: usize = 100;

pub(crate) fn node(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: Option<&ClusterId>,
    node_id: &NodeId,
) -> Result<NodeAnswer, ContractError> {
    let params = params::load(deps.storage)?;
    let located = resolve::node(deps.storage, cluster_id, node_id)?;
    let hot = ClusterHot::load(deps.storage, &located.cluster_id)?;
    let reading = Reading::new(deps.storage, &params, now(env), &located.cluster_id, &hot)?;
    let Place { cluster, page, slot } = located.place;
    let mut page = PageReading::load(deps.storage, cluster, page)?;
    let record = page.hot.record(slot).ok_or(ContractError::Corrupt {
        what: "a node's record",
    })?;
    Ok(NodeAnswer {
        node: reading.node(&mut page, slot, record)?,
        block: block(env),
    })
}

/// Calls `each` for every named node on record, page by page.
fn named(
    deps: Deps<'_>,
    cluster: &ClusterHot,
    node_ids: Vec<NodeId>,
    mut each: impl FnMut(&mut PageReading, u8, NodeId, HotRecord) -> Result<(), ContractError>,
) -> Result<(), ContractError> {
    if node_ids.len() > MAX_NAMED {
        return refuse(
            Code::InvalidField,
            format!("node_ids: at most {MAX_NAMED}, not {}", node_ids.len()),
        );
    }
    let mut places = Vec::with_capacity(node_ids.len());
    for id in node_ids {
        if let Some(place) = resolve::place(deps.storage, cluster.index, &id)? {
            places.push((place, id));
        }
    }
    places.sort_unstable();
    places.dedup();
    let mut open: Option<PageReading> = None;
    for (Place { cluster, page, slot }, id) in places {
        let mut reading = match open.take().filter(|p| p.place(0).page == page) {
            Some(reading) => reading,
            None => PageReading::load(deps.storage, cluster, page)?,
        };
        if let Some(record) = reading.hot.record(slot) {
            each(&mut reading, slot, id, record)?;
        }
        open = Some(reading);
    }
    Ok(())
}

pub(crate) fn nodes_by_ids(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: &ClusterId,
    node_ids: Vec<NodeId>,
) -> Result<NodesAnswer, ContractError> {
    let params = params::load(deps.storage)?;
    let hot = ClusterHot::load(deps.storage, cluster_id)?;
    let reading = Reading::new(deps.storage, &params, now(env), cluster_id, &hot)?;
    let mut nodes = Vec::new();
    named(deps, &hot, node_ids, |page, slot, _, record| {
        nodes.push(reading.node(page, slot, record)?);
        Ok(())
    })?;
    Ok(NodesAnswer {
        nodes,
        next: None,
        block: block(env),
    })
}

pub(crate) fn relay(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: &ClusterId,
    node_ids: Vec<NodeId>,
) -> Result<RelayAnswer, ContractError> {
    let params = params::load(deps.storage)?;
    let hot = ClusterHot::load(deps.storage, cluster_id)?;
    let reading = Reading::new(deps.storage, &params, now(env), cluster_id, &hot)?;
    let mut nodes = Vec::new();
    named(deps, &hot, node_ids, |page, slot, id, record| {
        nodes.push(reading.relay(page, slot, id, record)?);
        Ok(())
    })?;
    Ok(RelayAnswer {
        nodes,
        block: block(env),
    })
}

/// A cursor names the last slot looked at: `cluster number.page.slot`.
fn write_cursor(place: Place) -> String {
    format!("{}.{}.{}", place.cluster, place.page, place.slot)
}

fn read_cursor(text: &str) -> Result<Place, ContractError> {
    let mut parts = text.splitn(3, '.');
    let mut read = || {
        Some(Place {
            cluster: parts.next()?.parse().ok()?,
            page: parts.next()?.parse().ok()?,
            slot: parts.next()?.parse().ok()?,
        })
    };
    read().ok_or_else(|| {
        ContractError::new(
            Code::Malformed,
            "start_after must be the next of the answer before",
        )
    })
}

/// Conditions that the hot record decides.
fn meets(filter: &NodeFilter, record: &HotRecord, cluster_active: bool) -> bool {
    let NodeFilter {
        cluster_id: _,
        provider: _,
        state,
        schedulable,
        min_cores,
        min_memory_gb,
        min_gpus,
        gpu_type: _,
    } = filter;
    state.is_none_or(|s| record.state == s)
        && schedulable.is_none_or(|s| record.is_schedulable(cluster_active) == s)
        && min_cores.is_none_or(|n| u32::from(record.cores) >= n)
        && min_memory_gb.is_none_or(|n| record.memory_gb >= n)
        && min_gpus.is_none_or(|n| u32::from(record.gpus) >= n)
}

/// What a walk over slots is told after each of them.
enum Next {
    Go,
    /// The answer is full; the slot shown counts.
    Stop,
}

/// Walks the slots of one cluster from `from`; `budget` counts pages. Answers with the last place looked at if the
/// walk ended early.
fn walk(
    deps: Deps<'_>,
    hot: &ClusterHot,
    from: Option<Place>,
    budget: &mut u32,
    mut each: impl FnMut(&mut PageReading, u8, HotRecord) -> Result<Next, ContractError>,
) -> Result<Option<Place>, ContractError> {
    let first = from.map_or(0, |p| p.page);
    let mut last = from;
    for number in first..hot.pages() {
        if *budget == 0 {
            return Ok(last);
        }
        *budget -= 1;
        let mut page = PageReading::load(deps.storage, hot.index, number)?;
        let after = from.filter(|p| p.page == number).map(|p| p.slot);
        let records: Vec<_> = page
            .hot
            .records()
            .filter(|(slot, _)| after.is_none_or(|a| *slot > a))
            .collect();
        for (slot, record) in records {
            if matches!(each(&mut page, slot, record)?, Next::Stop) {
                return Ok(Some(page.place(slot)));
            }
        }
        last = Some(page.place(u8::MAX));
    }
    Ok(None)
}

pub(crate) fn nodes(
    deps: Deps<'_>,
    env: &Env,
    filter: &NodeFilter,
    start_after: Option<&str>,
    asked: Option<u32>,
) -> Result<NodesAnswer, ContractError> {
    let params = params::load(deps.storage)?;
    let limit = limit(asked);
    let from = start_after.map(read_cursor).transpose()?;
    let only = match &filter.cluster_id {
        Some(id) => Some(ClusterHot::load(deps.storage, id)?.index),
        None => None,
    };
    let mut nodes = Vec::new();
    let mut budget = MAX_PAGES;
    let mut index = only.unwrap_or_else(|| from.map_or(0, |p| p.cluster));
    let mut next = None;
    let count = cold::count(deps.storage);
    while index < count {
        if budget == 0 {
            // The cluster before has been walked to its end.
            next = Some(Place {
                cluster: index.saturating_sub(1),
                page: u16::MAX,
                slot: u8::MAX,
            });
            break;
        }
        let Some(id) = cold::id_of(deps.storage, index)? else {
            // A closed cluster.
            (index, budget) = (index.saturating_add(1), budget - 1);
            continue;
        };
        let budget_before = budget;
        let wanted = match &filter.provider {
            Some(provider) => ClusterInfo::load(deps.storage, &id)?.owner.as_str() == provider,
            None => true,
        };
        if wanted {
            let hot = ClusterHot::load(deps.storage, &id)?;
            let reading = Reading::new(deps.storage, &params, now(env), &id, &hot)?;
            let from = from.filter(|p| p.cluster == index);
            next = walk(deps, &hot, from, &mut budget, |page, slot, record| {
                if meets(filter, &reading.effective(record), hot.active) {
                    let node = reading.node(page, slot, record)?;
                    if filter.gpu_type.is_none() || filter.gpu_type == node.resources.gpu_type {
                        nodes.push(node);
                    }
                }
                Ok(if nodes.len() == limit {
                    Next::Stop
                } else {
                    Next::Go
                })
            })?;
            if next.is_some() {
                break;
            }
        }
        if only.is_some() {
            break;
        }
        if budget == budget_before {
            // A cluster without a page costs about as much as one with a page.
            budget -= 1;
        }
        index = index.saturating_add(1);
    }
    Ok(NodesAnswer {
        nodes,
        next: next.map(write_cursor),
        block: block(env),
    })
}

pub(crate) fn jobs_at_risk(
    deps: Deps<'_>,
    env: &Env,
    cluster_id: &ClusterId,
    start_after: Option<&str>,
    asked: Option<u32>,
) -> Result<JobsAnswer, ContractError> {
    let params = params::load(deps.storage)?;
    let limit = limit(asked);
    let hot = ClusterHot::load(deps.storage, cluster_id)?;
    let reading = Reading::new(deps.storage, &params, now(env), cluster_id, &hot)?;
    let from = start_after.map(read_cursor).transpose()?;
    let mut nodes = Vec::new();
    let next = walk(deps, &hot, from, &mut MAX_PAGES.clone(), |page, slot, record| {
        let effective = reading.effective(record);
        if effective.jobs_status() != JobsStatus::Normal {
            let place = page.place(slot);
            let section = reading.section(place)?;
            nodes.push(NodeJobs {
                node_id: resolve::node_id(deps.storage, place)?,
                state: effective.state,
                jobs: reading.jobs(&effective, section.as_ref()),
            });
        }
        Ok(if nodes.len() == limit {
            Next::Stop
        } else {
            Next::Go
        })
    })?;
    Ok(JobsAnswer {
        nodes,
        next: next.map(write_cursor),
        block: block(env),
    })
}
