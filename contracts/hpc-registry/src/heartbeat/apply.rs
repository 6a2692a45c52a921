//! Third pass: each report on its own, then the silent neighbours.

use cosmwasm_std::{Api, Storage};
use hpc_schema::code::Code;
use hpc_schema::node::lifecycle::{Context, ReportView, Silence, apply_report, step_silence};
use hpc_schema::registry::Params;
use hpc_schema::report::batch::PAGE_SLOTS;
use hpc_schema::report::{Body, Section, Tag, message};
use hpc_schema::time::UnixSeconds;

use super::collect::Candidate;
use super::work::{ClusterWork, PageWork};
use crate::cluster::{ClusterInfo, gpu_types, job_ids};
use crate::error::ContractError;
use crate::keys::Place;
use crate::node::change::Change;
use crate::node::page::StatsPage;

/// Judges one report and, if it is good, applies it to its page and its cluster's sums. Answers with its notice.
pub(crate) fn report(
    storage: &mut dyn Storage,
    api: &dyn Api,
    cluster: &mut ClusterWork,
    candidate: &Candidate<'_>,
    verified: bool,
    (params, now): (&Params, UnixSeconds),
) -> Result<Result<Option<Code>, Code>, ContractError> {
    let item = &candidate.item;
    let place = cluster.place(item.page, item.slot);
    let Some(page) = cluster.pages.get_mut(candidate.page) else {
        return Ok(Err(Code::UnknownNode));
    };
    let Some(before) = page.hot.record(item.slot) else {
        return Ok(Err(Code::UnknownNode));
    };
    if !verified {
        return Ok(Err(unverified(storage, api, candidate, place, before.sequence)));
    }
    let ctx = Context {
        now,
        params,
        cluster_active: cluster.hot.active,
    };
    let judged = Body::decode(&item.body).and_then(|body| {
        let section = item.section.map(Section::decode).transpose()?;
        if let Some(section) = &section {
            section.check_capacity(&body)?;
        }
        let view = ReportView {
            time: item.time,
            sequence: item.sequence,
            body,
        };
        Ok((section, apply_report(before, &view, &ctx)?))
    });
    let (section, applied) = match judged {
        Ok(good) => good,
        Err(code) => return Ok(Err(code)),
    };

    let old_type = page.sections.gpu_type(item.slot);
    let mut new_type = old_type;
    if let (Some(section), Some(bytes)) = (section, item.section)
        && candidate.digest != page.sections.digest(item.slot)
    {
        new_type = gpu_types::index_of(storage, place.cluster, &section.gpu_type);
        let restrained = if section.jobs.is_empty() {
            None
        } else {
            let setting = match cluster.job_ids {
                Some(setting) => setting,
                None => ClusterInfo::load(storage, &cluster.id)?.job_ids,
            };
            cluster.job_ids = Some(setting);
            job_ids::restrained(setting, &cluster.id, &section)
        };
        storage.set(&place.section(), restrained.as_deref().unwrap_or(bytes));
        page.sections.set_entry(item.slot, &candidate.digest, new_type);
        page.sections_changed = true;
    }
    cluster.hot.aggregate.sub(&before, old_type);
    cluster.hot.aggregate.add(&applied.record, new_type);
    page.hot.set(item.slot, &applied.record.encode());
    page.applied |= 1u64 << item.slot;
    if let Some(downtime) = applied.downtime {
        let mut stats = match page.stats.take() {
            Some(stats) => stats,
            None => StatsPage::load(storage, place.cluster, place.page)?,
        };
        stats.count(item.slot, downtime);
        page.stats = Some(stats);
    }
    // The standing of jobs can change without an arrow.
    if !applied.transitions.is_empty() || applied.record.jobs_status() != before.jobs_status() {
        page.changes.push(Change {
            slot: item.slot,
            before,
            after: applied.record,
            transitions: applied.transitions,
        });
    }
    Ok(Ok(applied.notice))
}

/// Why a signature does not verify: it may be that of the registration before; and without a section nobody can
/// tell a false signature from one over a section that the contract has not seen. A report that its section could not
/// save, because its sequence is not above the one on record, is not asked for it.
fn unverified(
    storage: &dyn Storage,
    api: &dyn Api,
    candidate: &Candidate<'_>,
    place: Place,
    on_record: u32,
) -> Code {
    let item = &candidate.item;
    let superseded = storage.get(&place.previous()).is_some_and(|old| {
        let Some((key, tag)) = old.split_first_chunk::<32>() else {
            return false;
        };
        let Some(tag) = tag.first_chunk::<16>() else {
            return false;
        };
        let tag = Tag::from_bytes(*tag);
        let message = message(
            &tag,
            item.time,
            item.sequence,
            &item.body,
            &candidate.digest,
            item.payload_hash,
        );
        api.ed25519_verify(&message, item.signature, key).unwrap_or(false)
    });
    match item.section {
        _ if superseded => Code::SupersededByRotation,
        None if item.sequence <= on_record => Code::StaleSequence,
        None => Code::SectionMissing,
        Some(_) => Code::SignatureInvalid,
    }
}

/// Steps the nodes of a written page that sent nothing, never beyond OFFLINE.
pub(crate) fn neighbours(cluster: &mut ClusterWork, at: usize, params: &Params, now: UnixSeconds) {
    let Some(PageWork {
        sections,
        hot,
        applied,
        changes,
        ..
    }) = cluster.pages.get_mut(at)
    else {
        return;
    };
    let silent: Vec<_> = (0..PAGE_SLOTS)
        .filter(|slot| *applied & (1u64 << slot) == 0)
        .filter_map(|slot| Some((slot, hot.record(slot)?)))
        .collect();
    for (slot, before) in silent {
        let (after, transitions) = step_silence(before, params, now, Silence::Neighbour);
        if transitions.is_empty() {
            continue;
        }
        let gpu_type = sections.gpu_type(slot);
        cluster.hot.aggregate.sub(&before, gpu_type);
        cluster.hot.aggregate.add(&after, gpu_type);
        hot.set(slot, &after.encode());
        changes.push(Change {
            slot,
            before,
            after,
            transitions,
        });
    }
}
