//! Registration and key rotation (protocol decisions 2 and 3).

use cosmwasm_std::{DepsMut, Env, Order, Response, Storage, to_json_binary};
use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::node::{HotRecord, NodeState, lifecycle};
use hpc_schema::registration::{NodeIdentity, key_rotation_message};
use hpc_schema::registry::{Event, RegisterAnswer};
use hpc_schema::report::Tag;

use super::identity::Identity;
use super::page::{self, KeyPage};
use super::resolve::Located;
use super::{change, fingerprint, resolve, verify};
use crate::cluster::{ClusterHot, ClusterInfo};
use crate::config::CONFIG;
use crate::config::query::now;
use crate::emit::Events;
use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};

/// What `register_node` carries besides the identity.
#[derive(Debug)]
pub(crate) struct Signatures<'a> {
    pub(crate) provider_signature: &'a str,
    pub(crate) provider_pubkey: &'a str,
    pub(crate) rotation_signature: Option<&'a str>,
}

pub(crate) fn register(
    deps: DepsMut<'_>,
    env: &Env,
    identity: &NodeIdentity,
    signatures: &Signatures<'_>,
) -> Result<Response, ContractError> {
    if CONFIG.load(deps.storage)?.registrations_paused {
        return refuse(Code::RegistrationsPaused, "the admin has paused registrations");
    }
    identity.check()?;
    let info = ClusterInfo::load(deps.storage, &identity.cluster_id)?;
    let Signatures {
        provider_signature,
        provider_pubkey,
        rotation_signature,
    } = signatures;
    verify::provider_signature(
        deps.api,
        env,
        &info,
        identity,
        provider_signature,
        provider_pubkey,
    )?;

    let mut cluster = ClusterHot::load(deps.storage, &identity.cluster_id)?;
    verify::check_nonce(deps.storage, cluster.index, identity)?;
    let existing = resolve::place(deps.storage, cluster.index, &identity.node_id)?;
    if let Some(fp) = &identity.hardware_fingerprint {
        fingerprint::check(deps.storage, fp, existing)?;
    }
    let (before, kind) = match existing {
        None => (None, "new"),
        Some(place) => {
            let record = page::record_at(deps.storage, place)?.ok_or(ContractError::Corrupt {
                what: "a node's record",
            })?;
            let kind = may_replace(&deps, env, identity, place, &record, *rotation_signature)?;
            (Some(record), kind)
        }
    };
    // Everything has been checked; from here on only writes.
    verify::burn_nonce(deps.storage, cluster.index, identity)?;
    let place = match existing {
        Some(place) => place,
        None => new_place(deps.storage, &mut cluster)?,
    };
    let epoch = next_epoch(deps.storage)?;
    write_keys(deps.storage, env, identity, place, epoch, before.is_some())?;
    write_identity(deps.storage, env, identity, place, epoch, before.is_some())?;

    if before.is_some_and(|r| r.state == NodeState::Deregistered) {
        page::forget_section(deps.storage, place)?;
    }
    let (after, arrows) = lifecycle::register(before);
    let node = Located {
        cluster_id: identity.cluster_id.clone(),
        node_id: identity.node_id.clone(),
        place,
    };
    let mut events = Events::default();
    events.push(Event::Registered {
        cluster_id: node.cluster_id.clone(),
        node_id: node.node_id.clone(),
        epoch,
        page: place.page,
        slot: place.slot,
        kind: kind.to_owned(),
        time: now(env).0,
    });
    change::record(
        deps.storage,
        &node,
        &mut cluster,
        (before, after),
        &arrows,
        now(env),
        &mut events,
    )?;
    let answer = RegisterAnswer {
        epoch,
        page: place.page,
        slot: place.slot,
    };
    Ok(events.into_response().set_data(to_json_binary(&answer)?))
}

/// A slot that `prune` has freed, else the next new one.
fn new_place(storage: &mut dyn Storage, cluster: &mut ClusterHot) -> Result<Place, ContractError> {
    let (start, end) = keys::free_range(cluster.index);
    let free = storage
        .range_keys(Some(&start), Some(&end), Order::Ascending)
        .next();
    match free {
        None => {
            let place = cluster.next_place()?;
            if place.slot == 0 {
                page::begin(storage, place.cluster, place.page);
            }
            Ok(place)
        }
        Some(key) => {
            let bytes = key
                .last_chunk::<7>()
                .ok_or(ContractError::Corrupt { what: "a free slot" })?;
            let place = Place::from_bytes(*bytes);
            storage.remove(&key);
            Ok(place)
        }
    }
}

/// Whether this registration may take the place of the present one, and what it is then called.
fn may_replace(
    deps: &DepsMut<'_>,
    env: &Env,
    identity: &NodeIdentity,
    place: Place,
    record: &HotRecord,
    rotation_signature: Option<&str>,
) -> Result<&'static str, ContractError> {
    let keys = KeyPage::load(deps.storage, place.cluster, place.page)?;
    let (old_key, _) = keys
        .entry(place.slot)
        .ok_or(ContractError::Corrupt { what: "a node's key" })?;
    let same_key = old_key == identity.agent_pubkey.as_bytes();
    if same_key || record.state == NodeState::Deregistered {
        return Ok("renewed");
    }
    if record.state == NodeState::Offline {
        return Ok("rotated");
    }
    let Some(signature) = rotation_signature else {
        return refuse(
            Code::NodeExists,
            format!(
                "node {} is {} with another agent_pubkey and rotation_signature is absent",
                identity.node_id, record.state
            ),
        );
    };
    let message = key_rotation_message(
        &env.block.chain_id,
        env.contract.address.as_str(),
        &identity.cluster_id,
        &identity.node_id,
        &identity.agent_pubkey,
        &identity.nonce()?,
    );
    let good = base64_exact::<64>(signature)
        .is_some_and(|s| deps.api.ed25519_verify(&message, &s, old_key).unwrap_or(false));
    if good {
        Ok("rotated")
    } else {
        refuse(
            Code::SignatureInvalid,
            "rotation_signature is not the present agent key's",
        )
    }
}

/// Epochs are drawn from one counter and never reused.
fn next_epoch(storage: &mut dyn Storage) -> Result<u64, ContractError> {
    let last = match storage.get(keys::EPOCH) {
        None => 0,
        Some(bytes) => bytes
            .try_into()
            .map(u64::from_be_bytes)
            .map_err(|_| ContractError::Corrupt { what: "the epoch" })?,
    };
    let epoch = last + 1;
    storage.set(keys::EPOCH, &epoch.to_be_bytes());
    Ok(epoch)
}

/// Writes key and tag; keeps those of the registration before for `superseded_by_rotation`.
fn write_keys(
    storage: &mut dyn Storage,
    env: &Env,
    identity: &NodeIdentity,
    place: Place,
    epoch: u64,
    replaces: bool,
) -> Result<(), ContractError> {
    let tag = Tag::derive(
        &env.block.chain_id,
        env.contract.address.as_str(),
        &identity.cluster_id,
        &identity.node_id,
        epoch,
    );
    let mut keys = KeyPage::load(storage, place.cluster, place.page)?;
    if replaces && let Some(old) = keys.slot(place.slot) {
        storage.set(&place.previous(), old);
    }
    keys.set_entry(place.slot, identity.agent_pubkey.as_bytes(), tag.as_bytes());
    keys.save(storage, place.cluster, place.page);
    Ok(())
}

fn write_identity(
    storage: &mut dyn Storage,
    env: &Env,
    identity: &NodeIdentity,
    place: Place,
    epoch: u64,
    replaces: bool,
) -> Result<(), ContractError> {
    let before = if replaces {
        Identity::load(storage, place)?.hardware_fingerprint
    } else {
        resolve::save(storage, &identity.node_id, place);
        None
    };
    fingerprint::take(
        storage,
        place,
        before.as_deref(),
        identity.hardware_fingerprint.as_deref(),
    )?;
    let cold = Identity {
        epoch,
        provider_address: identity.provider_address.clone(),
        hostname: identity.hostname.clone(),
        hardware_fingerprint: identity.hardware_fingerprint.clone(),
        registered_at: now(env),
    };
    cold.save(storage, place)
}
