//! `prune`: removes deregistered nodes past retention, and burnt nonces that can no longer be replayed.

use std::collections::BTreeMap;

use cosmwasm_std::{DepsMut, Order, Response, Storage, to_json_binary};
use hpc_schema::code::Code;
use hpc_schema::id::NodeId;
use hpc_schema::node::HOT_LEN;
use hpc_schema::registry::{Event, PruneAnswer};
use hpc_schema::time::UnixSeconds;

use crate::cluster::{ClusterHot, cold};
use crate::config::params;
use crate::emit::Events;
use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};
use crate::node::identity::Identity;
use crate::node::page::{self, StatsPage};
use crate::node::{fingerprint, resolve};

const DEFAULT_LIMIT: u32 = 32;
const MAX_LIMIT: u32 = 256;

pub(crate) fn prune(
    deps: DepsMut<'_>,
    now: UnixSeconds,
    limit: Option<u32>,
) -> Result<Response, ContractError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return refuse(
            Code::InvalidField,
            format!("limit must be 1 to {MAX_LIMIT}, is {limit}"),
        );
    }
    let take = usize::try_from(limit).unwrap_or(0);
    let retention = params::load(deps.storage)?.retention;
    let before = u32::try_from(now.minus(u64::from(retention)).0).unwrap_or(u32::MAX);
    let (start, end) = keys::due_range(before);
    let mut due: Vec<_> = deps
        .storage
        .range_keys(Some(&start), Some(&end), Order::Ascending)
        .take(take + 1)
        .collect();
    let done = due.len() <= take;
    due.truncate(take);

    let mut slots_of: BTreeMap<(u32, u16), Vec<(u8, UnixSeconds)>> = BTreeMap::new();
    for key in due {
        deps.storage.remove(&key);
        if let Some((at, place)) = read_due(&key) {
            let slots = slots_of.entry((place.cluster, place.page)).or_default();
            slots.push((place.slot, at));
        }
    }
    let mut events = Events::default();
    let mut removed = 0;
    for (of, slots) in slots_of {
        removed += clear(deps.storage, of, &slots, now, &mut events)?;
    }
    nonces(deps.storage, now, take);
    let data = to_json_binary(&PruneAnswer { removed, done })?;
    Ok(events.into_response().set_data(data))
}

fn read_due(key: &[u8]) -> Option<(UnixSeconds, Place)> {
    let (_, rest) = key.split_first()?;
    let (at, place) = rest.split_first_chunk::<4>()?;
    Some((
        UnixSeconds(u64::from(u32::from_be_bytes(*at))),
        Place::from_bytes(place.try_into().ok()?),
    ))
}

/// Frees the slots of a page whose nodes were deregistered at the times given; each page is written once. Answers with
/// how many there were.
fn clear(
    storage: &mut dyn Storage,
    (index, page): (u32, u16),
    due: &[(u8, UnixSeconds)],
    now: UnixSeconds,
    events: &mut Events,
) -> Result<u32, ContractError> {
    let (mut keys, mut sections, mut hot) = page::load_all(storage, index, page)?;
    // Registered again since, or even pruned and its slot reused: then the entry is void.
    let gone = |(slot, at): &(u8, UnixSeconds)| {
        let record = hot.record(*slot)?;
        (record.deregistered_at() == Some(*at)).then_some((*slot, record))
    };
    let gone: Vec<_> = due.iter().filter_map(gone).collect();
    if gone.is_empty() {
        return Ok(0);
    }
    let mut stats = StatsPage::load(storage, index, page)?;
    let had = (sections.clone(), stats.clone());
    let cluster_id = cold::id_of(storage, index)?.ok_or(ContractError::Corrupt {
        what: "a cluster's id",
    })?;
    let mut cluster = ClusterHot::load(storage, &cluster_id)?;
    for (slot, record) in &gone {
        cluster.aggregate.sub(record, 0);
        hot.set(*slot, &[0; HOT_LEN]);
        keys.set(*slot, &[0; 48]);
        sections.set(*slot, &[0; 17]);
        stats.set(*slot, &[0; 8]);
    }
    cluster.save(storage, &cluster_id, now);
    hot.save(storage, index, page);
    keys.save(storage, index, page);
    if sections != had.0 {
        sections.save(storage, index, page);
    }
    if stats != had.1 {
        stats.save(storage, index, page);
    }
    for (slot, _) in &gone {
        let place = Place {
            cluster: index,
            page,
            slot: *slot,
        };
        let (node_id, epoch) = forget(storage, place)?;
        events.push(Event::Removed {
            cluster_id: cluster_id.clone(),
            node_id,
            epoch,
            time: now.0,
        });
    }
    Ok(u32::try_from(gone.len()).unwrap_or(0))
}

/// Removes what stands of a node outside its page, and frees its slot; answers with its id and last epoch.
fn forget(storage: &mut dyn Storage, place: Place) -> Result<(NodeId, u64), ContractError> {
    let node_id = resolve::node_id(storage, place)?;
    let identity = Identity::load(storage, place)?;
    if let Some(fp) = &identity.hardware_fingerprint {
        fingerprint::release(storage, place, fp)?;
    }
    resolve::remove(storage, &node_id, place);
    for key in [place.section(), place.identity(), place.previous(), place.drain()] {
        storage.remove(&key);
    }
    storage.set(&place.free(), &[1]);
    Ok((node_id, identity.epoch))
}

/// Walks some nonces from where the last call ended, and forgets the expired ones.
fn nonces(storage: &mut dyn Storage, now: UnixSeconds, take: usize) {
    let cursor = storage.get(keys::NONCE_CURSOR);
    let start = keys::nonces_from(cursor.as_deref().unwrap_or_default());
    let seen: Vec<_> = storage
        .range(Some(&start), Some(keys::NONCES_END), Order::Ascending)
        .take(take + 1)
        .collect();
    match seen.get(take).and_then(|(key, _)| key.get(1..)) {
        Some(next) => storage.set(keys::NONCE_CURSOR, next),
        None if cursor.is_some() => storage.remove(keys::NONCE_CURSOR),
        None => {}
    }
    for (key, expiry) in seen.into_iter().take(take) {
        let expiry = expiry.try_into().map_or(u32::MAX, u32::from_be_bytes);
        if u64::from(expiry) < now.0 {
            storage.remove(&key);
        }
    }
}
