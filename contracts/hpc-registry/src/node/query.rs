//! Queries for one node, for named ones, and for all that meet conditions.

use cosmwasm_std::{Deps, Env, Storage};
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::HotRecord;
use hpc_schema::registry::{
    JobsAnswer, JobsStatus, NodeAnswer, NodeFilter, NodeJobs, NodesAnswer, RelayAnswer,
};

use super::resolve;
use super::view::{PageReading, Reading};
use super::walk::{MAX_PAGES, Next, read_cursor, walk, write_cursor};
use crate::cluster::gpu_types::{self, Found};
use crate::cluster::query::limit;
use crate::cluster::{ClusterHot, ClusterInfo, cold};
use crate::config::params;
use crate::config::query::{block, now};
use crate::error::{ContractError, refuse};
use crate::keys::Place;
use crate::meter::Meter;

/// Nodes named in one `relay`.
const MAX_RELAYED: usize = 100;
/// Nodes named in one `nodes_by_ids`: each may be on a page of its own, with the largest section.
const MAX_NAMED: usize = 50;

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
    (node_ids, most): (Vec<NodeId>, usize),
    mut each: impl FnMut(&mut PageReading, u8, NodeId, HotRecord) -> Result<(), ContractError>,
) -> Result<(), ContractError> {
    if node_ids.len() > most {
        return refuse(
            Code::InvalidField,
            format!("node_ids: at most {most}, not {}", node_ids.len()),
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
    named(deps, &hot, (node_ids, MAX_NAMED), |page, slot, _, record| {
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
    named(deps, &hot, (node_ids, MAX_RELAYED), |page, slot, id, record| {
        nodes.push(reading.relay(page, slot, id, record)?);
        Ok(())
    })?;
    Ok(RelayAnswer {
        nodes,
        block: block(env),
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

/// The GPU type asked for, as far as the pages of a cluster decide it.
enum GpuType<'a> {
    Any,
    /// No node of the cluster has it.
    None,
    /// The nodes whose page names this index have it.
    Index(u8),
    /// Came after the cluster's last index: only sections tell.
    Unnumbered(&'a str),
}

impl<'a> GpuType<'a> {
    fn of(storage: &dyn Storage, cluster: u32, asked: Option<&'a String>) -> Self {
        match asked {
            None => Self::Any,
            Some(name) => match gpu_types::find(storage, cluster, name) {
                Found::At(index) => Self::Index(index),
                Found::Absent => Self::None,
                Found::Full => Self::Unnumbered(name),
            },
        }
    }

    fn is_that_of(
        &self,
        reading: &Reading<'_>,
        page: &mut PageReading,
        slot: u8,
    ) -> Result<bool, ContractError> {
        Ok(match self {
            Self::Any => true,
            Self::None => false,
            Self::Index(index) => page.gpu_type(reading.storage, slot)? == *index,
            Self::Unnumbered(name) => {
                page.gpu_type(reading.storage, slot)? == 0
                    && reading
                        .section(page.place(slot))?
                        .is_some_and(|s| s.gpu_type == *name)
            }
        })
    }
}

pub(crate) fn nodes(
    deps: Deps<'_>,
    env: &Env,
    filter: &NodeFilter,
    start_after: Option<&str>,
    asked: Option<u32>,
) -> Result<NodesAnswer, ContractError> {
    let meter = Meter::new(deps.storage);
    let params = params::load(&meter)?;
    let limit = limit(asked);
    let from = start_after.map(read_cursor).transpose()?;
    let only = match &filter.cluster_id {
        Some(id) => Some(ClusterHot::load(&meter, id)?.index),
        None => None,
    };
    let mut nodes = Vec::new();
    let mut budget = MAX_PAGES;
    let mut index = only.unwrap_or_else(|| from.map_or(0, |p| p.cluster));
    let mut next = None;
    let count = cold::count(&meter);
    while index < count {
        if budget == 0 || meter.is_spent() {
            // The cluster before has been walked to its end.
            next = Some(Place {
                cluster: index.saturating_sub(1),
                page: u16::MAX,
                slot: u8::MAX,
            });
            break;
        }
        let Some(id) = cold::id_of(&meter, index)? else {
            // A closed cluster.
            (index, budget) = (index.saturating_add(1), budget - 1);
            continue;
        };
        let budget_before = budget;
        let wanted = match &filter.provider {
            Some(provider) => ClusterInfo::load(&meter, &id)?.owner.as_str() == provider,
            None => true,
        };
        if wanted {
            let hot = ClusterHot::load(&meter, &id)?;
            let reading = Reading::new(&meter, &params, now(env), &id, &hot)?;
            let gpu_type = GpuType::of(&meter, index, filter.gpu_type.as_ref());
            let from = from.filter(|p| p.cluster == index);
            next = walk(&meter, &hot, from, &mut budget, |page, slot, record| {
                if meets(filter, &reading.effective(record), hot.active)
                    && gpu_type.is_that_of(&reading, page, slot)?
                {
                    nodes.push(reading.node(page, slot, record)?);
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
    let meter = Meter::new(deps.storage);
    let params = params::load(&meter)?;
    let limit = limit(asked);
    let hot = ClusterHot::load(&meter, cluster_id)?;
    let reading = Reading::new(&meter, &params, now(env), cluster_id, &hot)?;
    let from = start_after.map(read_cursor).transpose()?;
    let mut nodes = Vec::new();
    let next = walk(
        &meter,
        &hot,
        from,
        &mut MAX_PAGES.clone(),
        |page, slot, record| {
            let effective = reading.effective(record);
            if effective.jobs_status() != JobsStatus::Normal {
                let place = page.place(slot);
                let section = reading.section(place)?;
                nodes.push(NodeJobs {
                    node_id: resolve::node_id(&meter, place)?,
                    state: effective.state,
                    jobs: reading.jobs(&effective, section.as_ref()),
                });
            }
            Ok(if nodes.len() == limit {
                Next::Stop
            } else {
                Next::Go
            })
        },
    )?;
    Ok(JobsAnswer {
        nodes,
        next: next.map(write_cursor),
        block: block(env),
    })
}
