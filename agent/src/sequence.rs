//! Sequence numbers that are never used twice, whatever kills the process or the machine.
//!
//! Numbers are reserved in blocks: the file says up to where numbers may have been used, and it is on the disk before
//! the first number of a block is handed out. After a crash the rest of the block is skipped.
//!
//! The file has two fixed slots, written in turn and in place, so that a torn write leaves the other one and a full
//! disk (which cannot take a new file) still takes the next block.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::files::{Durability, FileError, Replace, at, write};

/// Numbers reserved at once: about half an hour of heartbeats for one synchronous write.
pub const BLOCK: u32 = hpc_schema::gateway::SEQUENCE_BLOCK;
/// Slots lie in different 4 KiB blocks of the disk.
const SLOT_DISTANCE: u64 = 4096;
const SLOT_LENGTH: usize = 128;
const MAGIC: &str = "hpc-sequence-v1";

/// Why there is no next number.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// The block could not be reserved.
    #[error(transparent)]
    File(#[from] FileError),
    /// 2³² − 1 numbers are used up; a new registration starts a new epoch.
    #[error("the sequence numbers of this registration are used up; register the node again")]
    Exhausted,
    /// The present block is used up, and the next one is not on the disk yet.
    #[error(
        "{path} does not answer, or cannot be written (the log says why): the next block of sequence numbers is not reserved"
    )]
    NotReserved {
        /// The file.
        path: String,
    },
}

/// The durable counter of one registration epoch.
#[derive(Debug)]
pub struct Sequence {
    path: PathBuf,
    file: Arc<File>,
    record: Record,
    /// The last number handed out, or the floor.
    last: u32,
    /// A [`Reservation`] is out.
    under_way: bool,
}

/// A block that is to be reserved, by a thread that may wait for the disk.
#[derive(Debug)]
pub struct Reservation {
    path: PathBuf,
    file: Arc<File>,
    record: Record,
}

/// A block that is.
#[derive(Debug)]
pub struct Reserved(Record);

impl Reservation {
    /// Makes it durable.
    ///
    /// # Errors
    /// IO.
    pub fn make(self) -> Result<Reserved, SequenceError> {
        make(&self.file, self.record).map_err(at("write", &self.path))?;
        Ok(Reserved(self.record))
    }
}

/// What a slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    /// Rises with each write; the newer slot counts. Its parity is the slot's index.
    generation: u64,
    epoch: u64,
    /// Numbers up to this one may have been used.
    reserved: u32,
}

impl Sequence {
    /// Opens or makes the file. Continues above what was reserved in this `epoch`, and above `floor` in any case.
    ///
    /// A file of another epoch starts again above `floor`: the chain's count restarts with each epoch. A file in which
    /// neither slot can be read counts as lost: `floor` plus a block is skipped.
    ///
    /// # Errors
    /// IO.
    pub fn open(path: &Path, epoch: u64, floor: u32) -> Result<Self, SequenceError> {
        if !path.exists() {
            let first = Record {
                generation: 0,
                epoch,
                reserved: floor,
            };
            // Both slots exist from the start, so that later writes need no space.
            let mut bytes = first.encode();
            bytes.resize(usize::try_from(SLOT_DISTANCE).unwrap_or(SLOT_LENGTH), b' ');
            bytes.extend(
                Record {
                    generation: 1,
                    ..first
                }
                .encode(),
            );
            write(path, &bytes, 0o600, Replace::Never, Durability::Synced)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(at("open", path))?;
        // A clean stop leaves its slot with the kernel alone; it must be on the disk before the other one is overwritten.
        file.sync_data().map_err(at("sync", path))?;
        let slots = [read_slot(&file, 0), read_slot(&file, 1)];
        let newest = slots.iter().flatten().max_by_key(|r| r.generation).copied();
        let record = match newest {
            Some(r) if r.epoch == epoch => Record {
                reserved: r.reserved.max(floor),
                ..r
            },
            Some(r) => Record {
                generation: r.generation,
                epoch,
                reserved: floor,
            },
            None => Record {
                generation: 1,
                epoch,
                reserved: floor.saturating_add(BLOCK),
            },
        };
        let record = if newest == Some(record) {
            record
        } else {
            // The next start may not know this floor: what the caller was told stays true.
            let record = record.next(record.reserved);
            make(&file, record).map_err(at("write", path))?;
            record
        };
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            record,
            last: record.reserved,
            under_way: false,
        })
    }

    /// The last number handed out (or the number it continues above).
    #[must_use]
    pub fn last(&self) -> u32 {
        self.last
    }

    /// Hands out the next number of the present block. Nothing is written.
    ///
    /// # Errors
    /// The block is used up, or all numbers are.
    pub fn advance(&mut self) -> Result<u32, SequenceError> {
        let next = self.last.checked_add(1).ok_or(SequenceError::Exhausted)?;
        if next > self.record.reserved {
            return Err(self.not_reserved());
        }
        self.last = next;
        Ok(next)
    }

    /// Whether the next number is one of the next block.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.last >= self.record.reserved
    }

    /// The next block, to be reserved early, so that a disk which fails for a while costs no heartbeat; none while there is
    /// enough of the present one, or a reservation is out. What came of it is to be told ([`Sequence::reserved`]).
    pub fn reservation(&mut self) -> Option<Reservation> {
        if self.under_way || self.record.reserved.saturating_sub(self.last) >= BLOCK / 2 {
            return None;
        }
        self.under_way = true;
        Some(Reservation {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            record: self.record.next(self.last.saturating_add(BLOCK)),
        })
    }

    /// How a reservation ended.
    ///
    /// # Errors
    /// The block cannot be made durable; the present one stays usable.
    pub fn reserved(&mut self, end: Result<Reserved, SequenceError>) -> Result<(), SequenceError> {
        self.under_way = false;
        self.record = end?.0;
        Ok(())
    }

    /// Whether a reservation is out: until it has ended nobody else may write.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// Continues above `floor`: the gateway has seen a higher number than we remember.
    pub fn raise(&mut self, floor: u32) {
        self.last = self.last.max(floor);
    }

    /// On a clean stop: nothing above the last number was used, so the next start continues without a gap. The disk is not
    /// waited for, a slow one would hold up the end: whoever starts next finds it with the kernel, and has it on the disk
    /// before a number is handed out. After a power cut the rest of the block is skipped, as after a crash.
    ///
    /// # Errors
    /// IO; then the rest of the block is skipped too.
    pub fn release(self) -> Result<(), SequenceError> {
        if self.under_way {
            return Err(self.not_reserved());
        }
        let record = self.record.next(self.last);
        put(&self.file, record).map_err(at("write", &self.path))?;
        Ok(())
    }

    fn not_reserved(&self) -> SequenceError {
        SequenceError::NotReserved {
            path: self.path.display().to_string(),
        }
    }
}

/// Puts it on the disk.
fn make(file: &File, record: Record) -> io::Result<()> {
    put(file, record)?;
    file.sync_data()
}

fn put(file: &File, record: Record) -> io::Result<()> {
    let offset = if record.generation.is_multiple_of(2) {
        0
    } else {
        SLOT_DISTANCE
    };
    file.write_all_at(&record.encode(), offset)
}

fn read_slot(file: &File, index: u64) -> Option<Record> {
    let mut bytes = [0u8; SLOT_LENGTH];
    file.read_exact_at(&mut bytes, index.saturating_mul(SLOT_DISTANCE))
        .ok()?;
    Record::decode(std::str::from_utf8(&bytes).ok()?)
}

impl Record {
    /// The record after this one.
    fn next(self, up_to: u32) -> Self {
        Self {
            generation: self.generation.wrapping_add(1),
            reserved: up_to,
            ..self
        }
    }

    fn encode(self) -> Vec<u8> {
        let body = format!("{MAGIC} {} {} {}", self.generation, self.epoch, self.reserved);
        let mut line = format!("{body} {}", checksum(&body)).into_bytes();
        line.resize(SLOT_LENGTH.saturating_sub(1), b' ');
        line.push(b'\n');
        line
    }

    fn decode(line: &str) -> Option<Self> {
        let (body, sum) = line.trim_end().rsplit_once(' ')?;
        if sum != checksum(body) {
            return None;
        }
        let mut words = body.strip_prefix(MAGIC)?.split_ascii_whitespace();
        let record = Self {
            generation: words.next()?.parse().ok()?,
            epoch: words.next()?.parse().ok()?,
            reserved: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(record)
    }
}

fn checksum(body: &str) -> String {
    Sha256::digest(body)
        .iter()
        .take(8)
        .map(|b| format!("{b:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn prepare(s: &mut Sequence) {
        if let Some(due) = s.reservation() {
            let end = due.make();
            s.reserved(end).unwrap();
        }
    }

    /// The next number, of a block that is reserved first where it must be.
    fn next(s: &mut Sequence) -> u32 {
        if s.is_used_up() {
            prepare(s);
        }
        s.advance().unwrap()
    }

    fn path() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sequence");
        (dir, path)
    }

    #[test]
    fn numbers_rise_from_one_and_a_crash_skips_at_most_a_block() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        assert_eq!((next(&mut s), next(&mut s)), (1, 2));
        drop(s);
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        assert_eq!(next(&mut s), BLOCK + 1);
    }

    #[test]
    fn no_number_is_handed_out_before_its_block_is_reserved_and_nothing_is_written_for_it() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(s.is_used_up());
        assert!(matches!(s.advance(), Err(SequenceError::NotReserved { .. })));
        assert_eq!((s.last(), std::fs::read(&path).unwrap()), (0, before));
        prepare(&mut s);
        assert!(!s.is_used_up());
        assert_eq!(s.advance().unwrap(), 1);
    }

    #[test]
    fn a_clean_stop_leaves_no_gap() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        next(&mut s);
        s.release().unwrap();
        assert_eq!(next(&mut Sequence::open(&path, 5, 0).unwrap()), 2);
    }

    #[test]
    fn a_new_epoch_starts_again_above_the_floor() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        s.raise(1000);
        assert_eq!(next(&mut s), 1001);
        drop(s);
        let mut s = Sequence::open(&path, 6, 0).unwrap();
        assert_eq!(next(&mut s), 1);
        drop(s);
        assert_eq!(next(&mut Sequence::open(&path, 6, 500).unwrap()), 501);
    }

    #[test]
    fn a_floor_holds_after_a_restart_that_does_not_know_it() {
        let (_dir, path) = path();
        for floor in [0, 5] {
            Sequence::open(&path, 1, floor).unwrap();
        }
        assert_eq!(next(&mut Sequence::open(&path, 1, 0).unwrap()), 6);
    }

    #[test]
    fn a_torn_write_falls_back_to_the_other_slot_and_a_lost_file_skips_a_block() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        for _ in 0..=BLOCK {
            next(&mut s);
        }
        let newest = s.record;
        drop(s);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let torn = if newest.generation.is_multiple_of(2) {
            0
        } else {
            SLOT_DISTANCE
        };
        file.write_all_at(b"garbage", torn).unwrap();
        // The write of the second block was torn, so none of its numbers had been handed out.
        assert_eq!(next(&mut Sequence::open(&path, 5, 0).unwrap()), BLOCK + 1);
        for slot in [0, SLOT_DISTANCE] {
            file.write_all_at(b"garbage", slot).unwrap();
        }
        assert_eq!(next(&mut Sequence::open(&path, 5, 10).unwrap()), 10 + BLOCK + 1);
    }

    #[test]
    fn the_last_number_is_two_to_the_32_minus_one() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, u32::MAX - 1).unwrap();
        assert_eq!(next(&mut s), u32::MAX);
        assert!(matches!(s.advance(), Err(SequenceError::Exhausted)));
    }

    #[test]
    fn the_next_block_is_reserved_before_the_present_one_ends() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        for _ in 0..BLOCK {
            next(&mut s);
            prepare(&mut s);
            assert!(s.record.reserved - s.last() >= BLOCK / 2);
        }
    }

    #[test]
    fn a_reservation_that_hangs_costs_no_number_until_the_block_is_used_up_and_none_after() {
        let (_dir, path) = path();
        let mut s = Sequence::open(&path, 5, 0).unwrap();
        prepare(&mut s);
        let mut hangs = None;
        for n in 1..=BLOCK {
            assert_eq!(s.advance().unwrap(), n);
            let due = s.reservation();
            assert!(due.is_none() || hangs.is_none(), "one at a time");
            hangs = hangs.or(due);
        }
        assert!(matches!(s.advance(), Err(SequenceError::NotReserved { .. })));
        let end = hangs.unwrap().make();
        s.reserved(end).unwrap();
        assert_eq!(s.advance().unwrap(), BLOCK + 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn no_number_is_handed_out_twice_over_any_series_of_crashes(
            runs in proptest::collection::vec((0u32..150, any::<bool>(), 0u32..500), 1..8)
        ) {
            let (_dir, path) = path();
            let mut seen = HashSet::new();
            let mut highest = 0;
            for (count, clean, floor) in runs {
                let mut s = Sequence::open(&path, 1, floor).unwrap();
                prop_assert!(s.last() <= (highest + BLOCK).max(floor));
                for _ in 0..count {
                    let n = next(&mut s);
                    prop_assert!(n > highest && seen.insert(n));
                    highest = n;
                    prepare(&mut s);
                }
                highest = highest.max(s.last());
                if clean { s.release().unwrap(); }
            }
        }
    }
}
