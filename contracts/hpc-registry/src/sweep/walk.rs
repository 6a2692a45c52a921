//! `sweep`: steps the nodes of some pages by their silence, DEREGISTERED included (protocol decision 15).

use cosmwasm_std::{DepsMut, Response, Storage, to_json_binary};
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::node::HotRecord;
use hpc_schema::node::lifecycle::{Silence, deregistration_due, step_silence};
use hpc_schema::registry::{Params, SweepAnswer};
use hpc_schema::time::UnixSeconds;

use crate::cluster::{ClusterHot, cold};
use crate::config::params;
use crate::emit::Events;
use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};
use crate::node::change::{self, Change, note_deregistered};
use crate::node::drain;
use crate::node::page::{HotPage, SectionPage};

const DEFAULT_LIMIT: u32 = 16;
const MAX_LIMIT: u32 = 256;

struct Walk<'a> {
    params: &'a Params,
    now: UnixSeconds,
    events: Events,
    answer: SweepAnswer,
}

pub(crate) fn sweep(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    cluster_id: Option<ClusterId>,
    limit: Option<u32>,
) -> Result<Response, ContractError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return refuse(
            Code::InvalidField,
            format!("limit must be 1 to {MAX_LIMIT}, is {limit}"),
        );
    }
    let params = params::load(deps.storage)?;
    let mut walk = Walk {
        params: &params,
        now,
        events: Events::default(),
        answer: SweepAnswer {
            pages: 0,
            transitions: 0,
            done: false,
        },
    };
    match cluster_id {
        Some(id) => walk.one(deps.storage, &id, limit)?,
        None => walk.all(deps.storage, limit)?,
    }
    let data = to_json_binary(&walk.answer)?;
    Ok(walk.events.into_response().set_data(data))
}

impl Walk<'_> {
    /// Some pages of one cluster, from its own cursor.
    fn one(&mut self, storage: &mut dyn Storage, id: &ClusterId, limit: u32) -> Result<(), ContractError> {
        let mut cluster = ClusterHot::load(storage, id)?;
        let key = keys::cluster_cursor(cluster.index);
        let stored = storage.get(&key);
        let start = stored
            .as_deref()
            .and_then(|b| b.try_into().ok())
            .map_or(0, u16::from_be_bytes);
        let end = self.pages(storage, id, &mut cluster, start, limit)?;
        self.answer.done = end >= cluster.pages();
        if self.answer.done {
            if stored.is_some() {
                storage.remove(&key);
            }
        } else {
            storage.set(&key, &end.to_be_bytes());
        }
        Ok(())
    }

    /// Clusters one after the other, from the common cursor. A cluster costs at least as much as a page.
    fn all(&mut self, storage: &mut dyn Storage, limit: u32) -> Result<(), ContractError> {
        let stored = storage.get(keys::SWEEP_CURSOR);
        let (mut index, mut page) = match stored.as_deref() {
            Some(&[a, b, c, d, e, f]) => (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f])),
            _ => (0, 0),
        };
        let count = cold::count(storage);
        let mut left = limit;
        while left > 0 && index < count {
            let Some(id) = cold::id_of(storage, index)? else {
                // A closed cluster.
                (index, page, left) = (index.saturating_add(1), 0, left - 1);
                continue;
            };
            let mut cluster = ClusterHot::load(storage, &id)?;
            let visited = self.answer.pages;
            page = self.pages(storage, &id, &mut cluster, page, left)?;
            left = left.saturating_sub((self.answer.pages - visited).max(1));
            if page >= cluster.pages() {
                (index, page) = (index.saturating_add(1), 0);
            }
        }
        self.answer.done = index >= count;
        if self.answer.done {
            if stored.is_some() {
                storage.remove(keys::SWEEP_CURSOR);
            }
        } else {
            let ([a, b, c, d], [e, f]) = (index.to_be_bytes(), page.to_be_bytes());
            storage.set(keys::SWEEP_CURSOR, &[a, b, c, d, e, f]);
        }
        Ok(())
    }

    /// At most `limit` pages from `start`; answers with the page after the last one visited.
    fn pages(
        &mut self,
        storage: &mut dyn Storage,
        id: &ClusterId,
        cluster: &mut ClusterHot,
        start: u16,
        limit: u32,
    ) -> Result<u16, ContractError> {
        let before = self.answer.transitions;
        let limit = u16::try_from(limit).unwrap_or(u16::MAX);
        let end = cluster.pages().min(start.saturating_add(limit));
        for page in start..end {
            self.answer.pages += 1;
            self.page(storage, id, cluster, page)?;
        }
        if self.answer.transitions != before {
            cluster.save(storage, id, self.now);
        }
        Ok(end)
    }

    fn page(
        &mut self,
        storage: &mut dyn Storage,
        id: &ClusterId,
        cluster: &mut ClusterHot,
        page: u16,
    ) -> Result<(), ContractError> {
        let index = cluster.index;
        let place = |slot| Place {
            cluster: index,
            page,
            slot,
        };
        let mut hot = HotPage::load(storage, index, page)?;
        let mut changes = Vec::new();
        for (slot, before) in hot.records() {
            let mode = self.mode(storage, place(slot), &before);
            let (after, transitions) = step_silence(before, self.params, self.now, mode);
            if !transitions.is_empty() {
                changes.push(Change {
                    slot,
                    before,
                    after,
                    transitions,
                });
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        // A node that falls silent may leave the sums of its GPU type; none enters them.
        let leaves = |c: &Change| c.before.is_schedulable(true) && c.before.gpus > 0;
        let sections = if changes.iter().any(leaves) {
            Some(SectionPage::load(storage, index, page)?)
        } else {
            None
        };
        for change in &changes {
            hot.set(change.slot, &change.after.encode());
            let gpu_type = sections.as_ref().map_or(0, |s| s.gpu_type(change.slot));
            cluster.aggregate.sub(&change.before, gpu_type);
            cluster.aggregate.add(&change.after, gpu_type);
            note_deregistered(storage, place(change.slot), Some(&change.before), &change.after);
            self.answer.transitions += u32::try_from(change.transitions.len()).unwrap_or(0);
        }
        hot.save(storage, index, page);
        change::tell(storage, id, (index, page), &changes, self.now, &mut self.events)
    }

    /// The drain's order is read only where it decides.
    fn mode(&self, storage: &dyn Storage, place: Place, record: &HotRecord) -> Silence {
        let decides = record.drain && deregistration_due(record, self.params, self.now);
        let drain_until = decides
            .then(|| drain::order(storage, place).map(|d| d.until))
            .flatten();
        Silence::Sweep { drain_until }
    }
}
