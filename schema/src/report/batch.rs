//! The batch that a relayer submits for one cluster.
//!
//! version u8 = 1 ‖ base time u32 ‖ page groups. A page group is page u16 ‖ count u8 (1–64) ‖ items with
//! rising slots. An item is slot u8 ‖ sequence u32 ‖ time − base u16 ‖ body 14 ‖ payload hash 32 ‖ signature 64,
//! and, if the body's section bit is set, section length u16 ‖ section. Page and slot are framing that the agent
//! never knows; the tag, which is signed, says whose report it is.

use super::body::{BODY_LEN, SECTION_FOLLOWS};
use super::bytes::Reader;
use super::section::MAX_SECTION;
use super::wire::Report;
use crate::code::Code;

/// Nodes of a page.
pub const PAGE_SLOTS: u8 = 64;
/// Bytes of an item without a section.
pub const ITEM_LEN: usize = 1 + 4 + 2 + BODY_LEN + 32 + 64;

const VERSION: u8 = 1;

/// One report as it stands in a batch. Nothing in it has been judged but its framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item<'a> {
    /// Page of the node.
    pub page: u16,
    /// Slot within the page; may be out of range.
    pub slot: u8,
    /// A fault of order that concerns this item alone: [`Code::DuplicateNode`] if the slot repeats its
    /// predecessor's, [`Code::Malformed`] if it falls.
    pub order: Option<Code>,
    /// Report sequence.
    pub sequence: u32,
    /// Report time, UNIX seconds.
    pub time: u32,
    /// Body as it was signed: the section bit is cleared.
    pub body: [u8; BODY_LEN],
    /// SHA-256 of the payload.
    pub payload_hash: &'a [u8; 32],
    /// The agent's signature.
    pub signature: &'a [u8; 64],
    /// The second section, if it is attached.
    pub section: Option<&'a [u8]>,
}

/// Reads the items of a batch one by one; ends after the first error.
#[derive(Debug)]
pub struct Items<'a> {
    reader: Reader<'a>,
    base: u32,
    page: u16,
    left: u8,
    last: Option<u8>,
    broken: bool,
}

/// Opens a batch.
///
/// # Errors
/// [`Code::UnsupportedVersion`] for another version byte, [`Code::Malformed`] if the head is cut off,
/// [`Code::InvalidBatch`] if nothing follows it.
pub fn decode(bytes: &[u8]) -> Result<Items<'_>, Code> {
    let mut reader = Reader::new(bytes);
    match reader.u8() {
        Some(VERSION) => {}
        Some(_) => return Err(Code::UnsupportedVersion),
        None => return Err(Code::Malformed),
    }
    let base = reader.u32().ok_or(Code::Malformed)?;
    if reader.is_empty() {
        return Err(Code::InvalidBatch);
    }
    Ok(Items {
        reader,
        base,
        page: 0,
        left: 0,
        last: None,
        broken: false,
    })
}

impl<'a> Items<'a> {
    fn item(&mut self) -> Option<Item<'a>> {
        if self.left == 0 {
            self.page = self.reader.u16()?;
            self.left = self.reader.u8().filter(|n| (1..=PAGE_SLOTS).contains(n))?;
            self.last = None;
        }
        let slot = self.reader.u8()?;
        let sequence = self.reader.u32()?;
        let time = self.base.saturating_add(u32::from(self.reader.u16()?));
        let mut body = *self.reader.array::<BODY_LEN>()?;
        let payload_hash = self.reader.array()?;
        let signature = self.reader.array()?;
        let mut section = None;
        if let Some(flags) = body.first_mut().filter(|f| **f & SECTION_FOLLOWS != 0) {
            *flags &= !SECTION_FOLLOWS;
            let len = self.reader.u16()?;
            section = Some(self.reader.take(usize::from(len))?);
        }
        let order = match self.last {
            Some(last) if slot == last => Some(Code::DuplicateNode),
            Some(last) if slot < last => Some(Code::Malformed),
            _ => None,
        };
        if order.is_none() {
            self.last = Some(slot);
        }
        self.left = self.left.saturating_sub(1);
        Some(Item {
            page: self.page,
            slot,
            order,
            sequence,
            time,
            body,
            payload_hash,
            signature,
            section,
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Code>;

    /// `Err(Malformed)` where the bytes end early or a count is out of range: what follows cannot be found.
    fn next(&mut self) -> Option<Self::Item> {
        if self.broken || (self.left == 0 && self.reader.is_empty()) {
            return None;
        }
        let item = self.item();
        self.broken = item.is_none();
        Some(item.ok_or(Code::Malformed))
    }
}

/// One report for [`encode`].
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Page of the node.
    pub page: u16,
    /// Slot within the page, below 64.
    pub slot: u8,
    /// The report that the agent signed.
    pub report: &'a Report,
    /// Its signature.
    pub signature: &'a [u8; 64],
    /// The section to attach, if the chain's digest differs from the report's.
    pub section: Option<&'a [u8]>,
}

/// Why a batch cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// No report.
    #[error("a batch needs at least one report")]
    Empty,
    /// (page, slot) does not rise strictly, or a slot is 64 or more.
    #[error("reports must rise strictly by page and slot, slots below 64: see page {page}, slot {slot}")]
    Order {
        /// Page of the offending report.
        page: u16,
        /// Its slot.
        slot: u8,
    },
    /// The times are more than 65,535 s apart.
    #[error("report times in a batch may be at most 65535 s apart; leave out the report of time {time}")]
    Span {
        /// Time of the offending report.
        time: u32,
    },
    /// Longer than 4,096 bytes.
    #[error("a section has at most 4096 bytes, not {len}")]
    Section {
        /// Its length.
        len: usize,
    },
}

/// Writes a batch; the contract's outcomes count items in the order given here.
///
/// # Errors
/// See [`EncodeError`].
pub fn encode(reports: &[Outgoing<'_>]) -> Result<Vec<u8>, EncodeError> {
    let base = reports
        .iter()
        .map(|r| r.report.time)
        .min()
        .ok_or(EncodeError::Empty)?;
    if let Some(bad) = reports.iter().find(|r| r.slot >= PAGE_SLOTS) {
        return Err(EncodeError::Order {
            page: bad.page,
            slot: bad.slot,
        });
    }
    let mut out = Vec::with_capacity(5 + reports.len() * (ITEM_LEN + 1));
    out.push(VERSION);
    out.extend_from_slice(&base.to_be_bytes());
    let mut last: Option<(u16, u8)> = None;
    for group in reports.chunk_by(|a, b| a.page == b.page) {
        let Some(first) = group.first() else { continue };
        out.extend_from_slice(&first.page.to_be_bytes());
        // Slots below 64 that rise strictly are at most 64; a longer group fails below.
        out.push(u8::try_from(group.len()).unwrap_or(u8::MAX));
        for r in group {
            if last.is_some_and(|last| last >= (r.page, r.slot)) {
                return Err(EncodeError::Order {
                    page: r.page,
                    slot: r.slot,
                });
            }
            last = Some((r.page, r.slot));
            encode_item(&mut out, base, r)?;
        }
    }
    Ok(out)
}

fn encode_item(out: &mut Vec<u8>, base: u32, r: &Outgoing<'_>) -> Result<(), EncodeError> {
    let offset = u16::try_from(r.report.time.saturating_sub(base))
        .map_err(|_| EncodeError::Span { time: r.report.time })?;
    let mut body = r.report.body.encode();
    if let (Some(flags), Some(_)) = (body.first_mut(), r.section) {
        *flags |= SECTION_FOLLOWS;
    }
    out.push(r.slot);
    out.extend_from_slice(&r.report.sequence.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&body);
    out.extend_from_slice(&r.report.payload_hash);
    out.extend_from_slice(r.signature);
    if let Some(section) = r.section {
        let too_long = EncodeError::Section { len: section.len() };
        let len = u16::try_from(section.len()).map_err(|_| too_long)?;
        if section.len() > MAX_SECTION {
            return Err(too_long);
        }
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(section);
    }
    Ok(())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
