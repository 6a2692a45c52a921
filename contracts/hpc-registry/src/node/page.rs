//! Pages: one value for up to 64 nodes of a cluster.
//!
//! A page is a version byte, 01, and the slots in order, each of the page's width. It grows as slots are used: what
//! lies beyond its end is zero.
//!
//! | page | width | slot |
//! |---|---|---|
//! | hot | 22 | [`HotRecord`]; zero: no node |
//! | keys | 48 | agent key 32 ‖ tag 16 |
//! | sections | 17 | section digest 16 ‖ index of the GPU type u8; zero: none yet |
//! | statistics | 8 | recoveries u16 ‖ downtime in seconds u48 |

use cosmwasm_std::{Order, Storage};
use hpc_schema::node::{HOT_LEN, HotRecord};
use hpc_schema::report::SectionDigest;
use hpc_schema::report::batch::PAGE_SLOTS;

use crate::error::ContractError;
use crate::keys::{self, Kind, Place};

const VERSION: u8 = 1;

/// Slots of width `W`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page<const W: usize> {
    bytes: Vec<u8>,
}

pub(crate) type HotPage = Page<HOT_LEN>;
pub(crate) type KeyPage = Page<48>;
pub(crate) type SectionPage = Page<17>;
pub(crate) type StatsPage = Page<8>;

impl<const W: usize> Page<W> {
    fn read(stored: Option<Vec<u8>>) -> Result<Self, ContractError> {
        match stored {
            None => Ok(Self { bytes: vec![VERSION] }),
            Some(bytes)
                if bytes.first() == Some(&VERSION)
                    && (bytes.len() - 1).is_multiple_of(W)
                    && bytes.len() <= 1 + W * usize::from(PAGE_SLOTS) =>
            {
                Ok(Self { bytes })
            }
            Some(_) => Err(ContractError::Corrupt { what: "a page" }),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of a slot in place; `None` beyond the end.
    pub(crate) fn slot(&self, slot: u8) -> Option<&[u8; W]> {
        self.bytes.get(1 + usize::from(slot) * W..)?.first_chunk::<W>()
    }

    pub(crate) fn get(&self, slot: u8) -> [u8; W] {
        self.slot(slot).copied().unwrap_or([0; W])
    }

    /// Writes a slot below 64 and grows the page if need be.
    pub(crate) fn set(&mut self, slot: u8, value: &[u8; W]) {
        let start = 1 + usize::from(slot.min(PAGE_SLOTS - 1)) * W;
        if self.bytes.len() < start + W {
            if *value == [0; W] {
                return;
            }
            self.bytes.resize(start + W, 0);
        }
        if let Some(to) = self.bytes.get_mut(start..start + W) {
            to.copy_from_slice(value);
        }
    }
}

impl HotPage {
    pub(crate) fn load(storage: &dyn Storage, cluster: u32, page: u16) -> Result<Self, ContractError> {
        Self::read(storage.get(&keys::page(cluster, page, Kind::Hot)))
    }

    pub(crate) fn save(&self, storage: &mut dyn Storage, cluster: u32, page: u16) {
        storage.set(&keys::page(cluster, page, Kind::Hot), &self.bytes);
    }

    pub(crate) fn record(&self, slot: u8) -> Option<HotRecord> {
        HotRecord::decode(self.slot(slot)?)
    }

    /// The nodes of the page in order of their slots.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u8, HotRecord)> {
        (0..PAGE_SLOTS).filter_map(|slot| Some((slot, self.record(slot)?)))
    }
}

impl KeyPage {
    pub(crate) fn load(storage: &dyn Storage, cluster: u32, page: u16) -> Result<Self, ContractError> {
        Self::read(storage.get(&keys::page(cluster, page, Kind::Keys)))
    }

    pub(crate) fn save(&self, storage: &mut dyn Storage, cluster: u32, page: u16) {
        storage.set(&keys::page(cluster, page, Kind::Keys), &self.bytes);
    }

    /// Agent key and tag.
    pub(crate) fn entry(&self, slot: u8) -> Option<(&[u8; 32], &[u8; 16])> {
        let (key, tag) = self.slot(slot)?.split_first_chunk::<32>()?;
        Some((key, tag.first_chunk::<16>()?))
    }

    pub(crate) fn set_entry(&mut self, slot: u8, key: &[u8; 32], tag: &[u8; 16]) {
        let mut value = [0; 48];
        let (head, tail) = value.split_at_mut(32);
        head.copy_from_slice(key);
        tail.copy_from_slice(tag);
        self.set(slot, &value);
    }
}

impl SectionPage {
    pub(crate) fn load(storage: &dyn Storage, cluster: u32, page: u16) -> Result<Self, ContractError> {
        Self::read(storage.get(&keys::page(cluster, page, Kind::Sections)))
    }

    pub(crate) fn save(&self, storage: &mut dyn Storage, cluster: u32, page: u16) {
        storage.set(&keys::page(cluster, page, Kind::Sections), &self.bytes);
    }

    pub(crate) fn digest(&self, slot: u8) -> SectionDigest {
        self.slot(slot)
            .and_then(|b| b.first_chunk::<16>())
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn gpu_type(&self, slot: u8) -> u8 {
        self.slot(slot).and_then(|b| b.last()).copied().unwrap_or(0)
    }

    pub(crate) fn set_entry(&mut self, slot: u8, digest: &SectionDigest, gpu_type: u8) {
        let mut value = [gpu_type; 17];
        if let Some(to) = value.first_chunk_mut::<16>() {
            *to = *digest;
        }
        self.set(slot, &value);
    }
}

impl StatsPage {
    pub(crate) fn load(storage: &dyn Storage, cluster: u32, page: u16) -> Result<Self, ContractError> {
        Self::read(storage.get(&keys::stats(cluster, page)))
    }

    pub(crate) fn save(&self, storage: &mut dyn Storage, cluster: u32, page: u16) {
        storage.set(&keys::stats(cluster, page), &self.bytes);
    }

    /// Recoveries and seconds of downtime.
    pub(crate) fn entry(&self, slot: u8) -> (u16, u64) {
        let [r0, r1, d @ ..] = self.get(slot);
        let [d0, d1, d2, d3, d4, d5] = d;
        (
            u16::from_be_bytes([r0, r1]),
            u64::from_be_bytes([0, 0, d0, d1, d2, d3, d4, d5]),
        )
    }

    /// Counts a recovery after `downtime` seconds; both saturate.
    pub(crate) fn count(&mut self, slot: u8, downtime: u32) {
        let (recoveries, total) = self.entry(slot);
        let [r0, r1] = recoveries.saturating_add(1).to_be_bytes();
        let total = total.saturating_add(u64::from(downtime)).min((1 << 48) - 1);
        let [_, _, d0, d1, d2, d3, d4, d5] = total.to_be_bytes();
        self.set(slot, &[r0, r1, d0, d1, d2, d3, d4, d5]);
    }
}

/// Begins a page: its head, without which a scan of it would pay for the key page twice.
pub(crate) fn begin(storage: &mut dyn Storage, cluster: u32, page: u16) {
    storage.set(&keys::page(cluster, page, Kind::Head), &[VERSION]);
}

/// Key, section and hot page of a page in one range scan: a step costs 30 gas where a read costs 1,000.
pub(crate) fn load_all(
    storage: &dyn Storage,
    cluster: u32,
    page: u16,
) -> Result<(KeyPage, SectionPage, HotPage), ContractError> {
    let (start, end) = keys::page_range(cluster, page);
    let (mut keys, mut sections, mut hot) = (None, None, None);
    for (key, value) in storage.range(Some(&start), Some(&end), Order::Ascending) {
        const KEYS: u8 = Kind::Keys.number();
        const SECTIONS: u8 = Kind::Sections.number();
        const HOT: u8 = Kind::Hot.number();
        match key.last() {
            Some(&KEYS) => keys = Some(value),
            Some(&SECTIONS) => sections = Some(value),
            Some(&HOT) => hot = Some(value),
            _ => {}
        }
    }
    Ok((
        KeyPage::read(keys)?,
        SectionPage::read(sections)?,
        HotPage::read(hot)?,
    ))
}

/// Forgets a node's second section, with its entry in the page.
pub(crate) fn forget_section(storage: &mut dyn Storage, place: Place) -> Result<(), ContractError> {
    storage.remove(&place.section());
    let mut sections = SectionPage::load(storage, place.cluster, place.page)?;
    if sections.get(place.slot) != [0; 17] {
        sections.set(place.slot, &[0; 17]);
        sections.save(storage, place.cluster, place.page);
    }
    Ok(())
}

/// Everything of one node that pages hold.
pub(crate) fn record_at(storage: &dyn Storage, place: Place) -> Result<Option<HotRecord>, ContractError> {
    Ok(HotPage::load(storage, place.cluster, place.page)?.record(place.slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_with_their_slots_and_are_zero_beyond() {
        let mut page = StatsPage::read(None).unwrap();
        page.set(3, &[0; 8]);
        assert_eq!(page.bytes(), [1]);
        page.count(2, 70);
        page.count(2, u32::MAX);
        assert_eq!(page.bytes().len(), 1 + 3 * 8);
        assert_eq!(page.entry(2), (2, 70 + u64::from(u32::MAX)));
        assert_eq!(page.entry(63), (0, 0));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for bad in [vec![], vec![2], vec![1, 0], vec![1; 1 + 65 * 8]] {
            assert!(StatsPage::read(Some(bad)).is_err());
        }
    }
}
