//! Walks over the slots of a cluster, and the cursors that carry them on.

use hpc_schema::code::Code;
use hpc_schema::node::HotRecord;

use super::view::PageReading;
use crate::cluster::ClusterHot;
use crate::error::ContractError;
use crate::keys::Place;
use crate::meter::Meter;

/// Pages and clusters looked at in one call of a filtered list.
pub(crate) const MAX_PAGES: u32 = 64;

/// A cursor names the last slot looked at: `cluster number.page.slot`.
pub(crate) fn write_cursor(place: Place) -> String {
    format!("{}.{}.{}", place.cluster, place.page, place.slot)
}

pub(crate) fn read_cursor(text: &str) -> Result<Place, ContractError> {
    let mut parts = text.splitn(3, '.');
    let mut read = || {
        Some(Place {
            cluster: parts.next()?.parse().ok()?,
            page: parts.next()?.parse().ok()?,
            slot: parts.next()?.parse().ok()?,
        })
    };
    read().ok_or_else(|| {
        ContractError::new(
            Code::Malformed,
            "start_after must be the next of the answer before",
        )
    })
}

/// What a walk over slots is told after each of them.
pub(crate) enum Next {
    Go,
    /// The answer is full; the slot shown counts.
    Stop,
}

/// Walks the slots of one cluster from `from`; `budget` counts pages, the meter what is read. Answers with the last
/// place looked at if the walk ended early.
pub(crate) fn walk(
    meter: &Meter<'_>,
    hot: &ClusterHot,
    from: Option<Place>,
    budget: &mut u32,
    mut each: impl FnMut(&mut PageReading, u8, HotRecord) -> Result<Next, ContractError>,
) -> Result<Option<Place>, ContractError> {
    let first = from.map_or(0, |p| p.page);
    let mut last = from;
    for number in first..hot.pages() {
        if *budget == 0 {
            return Ok(last);
        }
        *budget -= 1;
        let mut page = PageReading::load(meter, hot.index, number)?;
        let after = from.filter(|p| p.page == number).map(|p| p.slot);
        let records: Vec<_> = page
            .hot
            .records()
            .filter(|(slot, _)| after.is_none_or(|a| *slot > a))
            .collect();
        for (slot, record) in records {
            if matches!(each(&mut page, slot, record)?, Next::Stop) || meter.is_spent() {
                return Ok(Some(page.place(slot)));
            }
        }
        last = Some(page.place(u8::MAX));
    }
    Ok(None)
}
