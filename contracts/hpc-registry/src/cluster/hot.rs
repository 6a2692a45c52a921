//! What every batch reads and writes of a cluster.
//!
//! version u8 = 1 ‖ flags u8 (bit 0: active) ‖ index u32 ‖ slots in use u32 ‖ recorded at u32 ‖ aggregate
//! ([`hpc_schema::cluster::Aggregate::encode`]).

use cosmwasm_std::Storage;
use hpc_schema::cluster::Aggregate;
use hpc_schema::code::Code;
use hpc_schema::id::ClusterId;
use hpc_schema::report::batch::PAGE_SLOTS;
use hpc_schema::time::UnixSeconds;

use crate::error::{ContractError, refuse};
use crate::keys::{self, Place};

const VERSION: u8 = 1;
const ACTIVE: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterHot {
    pub(crate) active: bool,
    /// The cluster's number; stands in the keys of everything that is its.
    pub(crate) index: u32,
    /// Slots ever handed out; pages follow from it.
    pub(crate) slots: u32,
    /// Block time of the last write of this record.
    pub(crate) recorded_at: u32,
    pub(crate) aggregate: Aggregate,
}

impl ClusterHot {
    pub(crate) fn new(index: u32, now: u32) -> Self {
        Self {
            active: false,
            index,
            slots: 0,
            recorded_at: now,
            aggregate: Aggregate::default(),
        }
    }

    /// Pages in use.
    pub(crate) fn pages(&self) -> u16 {
        u16::try_from(self.slots.div_ceil(u32::from(PAGE_SLOTS))).unwrap_or(u16::MAX)
    }

    /// The next slot that was never used.
    pub(crate) fn next_place(&mut self) -> Result<Place, ContractError> {
        // The last number is no page's: cursors use it for "to the end", and `pages` could not count it.
        let page = u16::try_from(self.slots / u32::from(PAGE_SLOTS))
            .ok()
            .filter(|page| *page < u16::MAX)
            .ok_or_else(|| ContractError::new(Code::InvalidState, "the cluster has no slot left"))?;
        let slot = u8::try_from(self.slots % u32::from(PAGE_SLOTS)).unwrap_or(0);
        self.slots += 1;
        Ok(Place {
            cluster: self.index,
            page,
            slot,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(VERSION);
        out.push(if self.active { ACTIVE } else { 0 });
        for n in [self.index, self.slots, self.recorded_at] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        self.aggregate.encode(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, flags, a, b, c, d, e, f, g, h, i, j, k, l], rest) =
            bytes.split_first_chunk::<14>()?;
        (version == VERSION).then_some(())?;
        Some(Self {
            active: flags & ACTIVE != 0,
            index: u32::from_be_bytes([a, b, c, d]),
            slots: u32::from_be_bytes([e, f, g, h]),
            recorded_at: u32::from_be_bytes([i, j, k, l]),
            aggregate: Aggregate::decode(rest)?,
        })
    }

    pub(crate) fn find(storage: &dyn Storage, id: &ClusterId) -> Result<Option<Self>, ContractError> {
        storage
            .get(&keys::cluster_hot(id))
            .map(|bytes| Self::decode(&bytes).ok_or(ContractError::Corrupt { what: "a cluster" }))
            .transpose()
    }

    pub(crate) fn load(storage: &dyn Storage, id: &ClusterId) -> Result<Self, ContractError> {
        match Self::find(storage, id)? {
            Some(cluster) => Ok(cluster),
            None => refuse(Code::UnknownCluster, format!("cluster_id {id} is not on record")),
        }
    }

    /// Writes the record; the sums hold as of `now`.
    pub(crate) fn save(&mut self, storage: &mut dyn Storage, id: &ClusterId, now: UnixSeconds) {
        self.recorded_at = u32::try_from(now.0).unwrap_or(u32::MAX);
        storage.set(&keys::cluster_hot(id), &self.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_round_trip() {
        let mut hot = ClusterHot::new(7, 1_800_000_000);
        hot.active = true;
        for expected in 0..70u32 {
            let place = hot.next_place().unwrap();
            assert_eq!(u32::from(place.page) * 64 + u32::from(place.slot), expected);
        }
        assert_eq!(hot.pages(), 2);
        assert_eq!(ClusterHot::decode(&hot.encode()), Some(hot.clone()));
        assert_eq!(ClusterHot::decode(&hot.encode()[..10]), None);
    }

    #[test]
    fn the_last_page_number_is_never_given_out() {
        let mut hot = ClusterHot::new(7, 0);
        hot.slots = u32::from(u16::MAX) * 64 - 1;
        let last = hot.next_place().unwrap();
        assert_eq!((last.page, last.slot, hot.pages()), (u16::MAX - 1, 63, u16::MAX));
        assert_eq!(hot.next_place().unwrap_err().code(), Some(Code::InvalidState));
    }
}
