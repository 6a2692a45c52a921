//! Hardware fingerprints: one live node each, on the whole contract.

use cosmwasm_std::Storage;
use hpc_schema::code::Code;
use hpc_schema::node::NodeState;

use super::{page, resolve};
use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};

fn key(fingerprint: &str) -> Vec<u8> {
    let bytes: Vec<u8> = (0..fingerprint.len())
        .step_by(2)
        .filter_map(|i| u8::from_str_radix(fingerprint.get(i..i + 2)?, 16).ok())
        .collect();
    keys::fingerprint(&bytes)
}

fn holder(storage: &dyn Storage, fingerprint: &str) -> Result<Option<Place>, ContractError> {
    match storage.get(&key(fingerprint)) {
        None => Ok(None),
        Some(bytes) => match bytes.try_into() {
            Ok(bytes) => Ok(Some(Place::from_bytes(bytes))),
            Err(_) => Err(ContractError::Corrupt {
                what: "a fingerprint",
            }),
        },
    }
}

/// Refuses a fingerprint that another live node holds.
pub(crate) fn check(
    storage: &dyn Storage,
    fingerprint: &str,
    own: Option<Place>,
) -> Result<(), ContractError> {
    let Some(place) = holder(storage, fingerprint)?.filter(|place| Some(*place) != own) else {
        return Ok(());
    };
    match page::record_at(storage, place)? {
        Some(record) if record.state != NodeState::Deregistered => {
            let other = resolve::node_id(storage, place)?;
            refuse(
                Code::DuplicateHardware,
                format!(
                    "node_identity.hardware_fingerprint is that of node {other}, which is {}",
                    record.state
                ),
            )
        }
        _ => Ok(()),
    }
}

/// Records the holder; lets go of the fingerprint it had before.
pub(crate) fn take(
    storage: &mut dyn Storage,
    place: Place,
    before: Option<&str>,
    now: Option<&str>,
) -> Result<(), ContractError> {
    if before != now
        && let Some(before) = before
    {
        release(storage, place, before)?;
    }
    if let Some(now) = now {
        storage.set(&key(now), &place.to_bytes());
    }
    Ok(())
}

/// Forgets the fingerprint, unless it has gone over to another node.
pub(crate) fn release(
    storage: &mut dyn Storage,
    place: Place,
    fingerprint: &str,
) -> Result<(), ContractError> {
    if holder(storage, fingerprint)? == Some(place) {
        storage.remove(&key(fingerprint));
    }
    Ok(())
}
