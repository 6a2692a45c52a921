//! Node ids of a page, by the cheaper of two ways.

use cosmwasm_std::{Order, Storage};
use hpc_schema::id::NodeId;

use super::resolve;
use crate::error::ContractError;
use crate::keys::Place;

/// A single read costs about six steps of a scan.
const STEPS_PER_READ: usize = 6;

/// The ids of these slots, in their order.
pub(crate) fn node_ids(
    storage: &dyn Storage,
    cluster: u32,
    page: u16,
    slots: impl Iterator<Item = u8>,
) -> Result<Vec<NodeId>, ContractError> {
    let slots: Vec<u8> = slots.collect();
    let (Some(first), Some(last)) = (slots.iter().min(), slots.iter().max()) else {
        return Ok(Vec::new());
    };
    let at = |slot| Place { cluster, page, slot };
    if usize::from(last - first) >= slots.len() * STEPS_PER_READ {
        return slots
            .iter()
            .map(|slot| resolve::node_id(storage, at(*slot)))
            .collect();
    }
    let (start, end) = (at(*first).node_id(), at(last.saturating_add(1)).node_id());
    let mut by_slot: [Option<NodeId>; 64] = [const { None }; 64];
    for (key, value) in storage.range(Some(&start), Some(&end), Order::Ascending) {
        let slot = key.last().and_then(|slot| by_slot.get_mut(usize::from(*slot)));
        if let Some(slot) = slot {
            *slot = String::from_utf8(value).ok().and_then(|text| text.parse().ok());
        }
    }
    slots
        .iter()
        .map(|slot| {
            by_slot
                .get_mut(usize::from(*slot))
                .and_then(Option::take)
                .ok_or(ContractError::Corrupt { what: "a node's id" })
        })
        .collect()
}
