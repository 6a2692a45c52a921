use cosmwasm_std::{Binary, DepsMut, Env, Response, Storage, to_json_binary};
use hpc_schema::code::Code;
use hpc_schema::registry::{Event, ReportGroup};
use hpc_schema::time::UnixSeconds;

use super::collect::Collector;
use super::work::ClusterWork;
use super::{apply, signatures};
use crate::config::params;
use crate::config::query::now;
use crate::emit::Events;
use crate::error::{ContractError, refuse};
use crate::node::change;

pub(crate) fn submit(
    deps: DepsMut<'_>,
    env: &Env,
    groups: &[ReportGroup],
) -> Result<Response, ContractError> {
    let (params, now) = (params::load(deps.storage)?, now(env));
    let decoded: Vec<Option<Binary>> = groups
        .iter()
        .map(|g| Binary::from_base64(&g.reports).ok())
        .collect();
    let mut batch = Collector::new(params.batch_limit);
    for (number, (group, bytes)) in (0u32..).zip(groups.iter().zip(&decoded)) {
        batch.group(
            deps.storage,
            number,
            &group.cluster_id,
            bytes.as_ref().map(Binary::as_slice),
        )?;
    }
    let Collector {
        mut clusters,
        candidates,
        mut answer,
        items,
        ..
    } = batch;
    if items == 0 {
        let code = answer.bad_groups.first().and_then(|(_, n)| Code::from_number(*n));
        return refuse(
            code.unwrap_or(Code::InvalidBatch),
            "groups hold no report that can be read",
        );
    }

    let verdicts = signatures::verify(deps.api, &clusters, &candidates);
    for (candidate, verified) in candidates.iter().zip(verdicts) {
        let Some(cluster) = clusters.get_mut(candidate.cluster) else {
            continue;
        };
        match apply::report(
            deps.storage,
            deps.api,
            cluster,
            candidate,
            verified,
            (&params, now),
        )? {
            Ok(notice) => {
                answer.accepted += 1;
                answer
                    .notices
                    .extend(notice.map(|code| (candidate.number, code.number())));
            }
            Err(code) => answer.refused.push((candidate.number, code.number())),
        }
    }
    answer.refused.sort_unstable();

    let mut events = Events::default();
    for cluster in &mut clusters {
        for at in 0..cluster.pages.len() {
            if cluster.pages.get(at).is_some_and(|p| p.applied != 0) {
                apply::neighbours(cluster, at, &params, now);
            }
        }
        save(deps.storage, cluster, now, &mut events)?;
    }
    let refused = items - answer.accepted;
    events.push(Event::Batch {
        accepted: answer.accepted,
        refused,
    });
    Ok(events.into_response().set_data(to_json_binary(&answer)?))
}

/// Writes what changed: pages that took a report, then the cluster, once.
fn save(
    storage: &mut dyn Storage,
    cluster: &mut ClusterWork,
    now: UnixSeconds,
    events: &mut Events,
) -> Result<(), ContractError> {
    let index = cluster.hot.index;
    let mut written = false;
    for page in cluster.pages.iter().filter(|p| p.applied != 0) {
        written = true;
        page.hot.save(storage, index, page.page);
        if page.sections_changed {
            page.sections.save(storage, index, page.page);
        }
        if let Some(stats) = &page.stats {
            stats.save(storage, index, page.page);
        }
        change::tell(
            storage,
            &cluster.id,
            (index, page.page),
            &page.changes,
            now,
            events,
        )?;
    }
    if written {
        cluster.hot.save(storage, &cluster.id, now);
    }
    Ok(())
}
