//! `prune`: removes deregistered nodes past retention, and burnt nonces that can no longer be replayed.

use cosmwasm_std::{DepsMut, Order, Response, Storage, to_json_binary};
use hpc_schema::code::Code;
use hpc_schema::registry::{Event, PruneAnswer};
use hpc_schema::time::UnixSeconds;

use crate::cluster::{ClusterHot, cold};
use crate::config::params;
use crate::emit::Events;
use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};
use crate::node::identity::Identity;
use crate::node::page::{self, HotPage, KeyPage, StatsPage};
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

    let mut events = Events::default();
    let mut removed = 0;
    for key in due {
        deps.storage.remove(&key);
        let Some((at, place)) = read_due(&key) else {
            continue;
        };
        // Registered again since, or even pruned and its slot reused: then this entry is void.
        let mut hot = HotPage::load(deps.storage, place.cluster, place.page)?;
        let Some(record) = hot.record(place.slot).filter(|r| r.deregistered_at() == Some(at)) else {
            continue;
        };
        let cluster_id = cold::id_of(deps.storage, place.cluster)?.ok_or(ContractError::Corrupt {
            what: "a cluster's id",
        })?;
        let mut cluster = ClusterHot::load(deps.storage, &cluster_id)?;
        cluster.aggregate.sub(&record, 0);
        cluster.save(deps.storage, &cluster_id, now);
        hot.set(place.slot, &[0; 22]);
        hot.save(deps.storage, place.cluster, place.page);
        let node_id = resolve::node_id(deps.storage, place)?;
        let identity = Identity::load(deps.storage, place)?;
        if let Some(fp) = &identity.hardware_fingerprint {
            fingerprint::release(deps.storage, place, fp)?;
        }
        resolve::remove(deps.storage, &node_id, place);
        clear_slot(deps.storage, place)?;
        removed += 1;
        events.push(&Event::Removed {
            cluster_id,
            node_id,
            epoch: identity.epoch,
            time: now.0,
        });
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

/// Everything that a slot holds besides its record; the slot is free afterwards.
fn clear_slot(storage: &mut dyn Storage, place: Place) -> Result<(), ContractError> {
    let Place {
        cluster,
        page: number,
        slot,
    } = place;
    let mut keys = KeyPage::load(storage, cluster, number)?;
    keys.set(slot, &[0; 48]);
    keys.save(storage, cluster, number);
    page::forget_section(storage, place)?;
    let mut stats = StatsPage::load(storage, cluster, number)?;
    if stats.get(slot) != [0; 8] {
        stats.set(slot, &[0; 8]);
        stats.save(storage, cluster, number);
    }
    for key in [place.identity(), place.previous(), place.drain()] {
        storage.remove(&key);
    }
    storage.set(&place.free(), &[1]);
    Ok(())
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
