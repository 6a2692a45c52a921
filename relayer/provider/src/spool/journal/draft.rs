use std::io;

use crc32fast::Hasher;

use super::super::accept::Accept;
use super::entry;

/// What a group begins with.
pub(super) const MAGIC: [u8; 4] = *b"VEJ1";
/// Magic, length of the entries, number, CRC-32 of length, number and entries.
pub(super) const HEAD: usize = 4 + 4 + 8 + 4;

/// A group as it goes into a file: each report is put where it stays and summed up while it is at hand, for a group of
/// hundreds is larger than what a CPU keeps near. The head comes last.
#[derive(Debug)]
pub(in super::super) struct Draft {
    /// Room for the head, and the entries.
    bytes: Vec<u8>,
    /// CRC-32 of the entries.
    sum: u32,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            bytes: vec![0; HEAD],
            sum: 0,
        }
    }
}

impl Draft {
    /// With these entries.
    pub(super) fn of(entries: &[u8]) -> Self {
        let mut draft = Self::default();
        draft.put(|bytes| bytes.extend_from_slice(entries));
        draft
    }

    /// Whether nothing is in it.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Nothing is in it any more; its memory stays.
    pub(in super::super) fn clear(&mut self) {
        self.bytes.truncate(HEAD);
        self.sum = 0;
    }

    /// Appends a report.
    pub(in super::super) fn add(&mut self, report: &Accept) {
        self.put(|bytes| entry::put(bytes, report));
    }

    fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        put(&mut self.bytes);
        let mut sum = Hasher::new_with_initial(self.sum);
        sum.update(self.bytes.get(before..).unwrap_or_default());
        self.sum = sum.finalize();
    }

    fn entries(&self) -> &[u8] {
        self.bytes.get(HEAD..).unwrap_or_default()
    }

    /// Bytes of the whole group.
    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    /// The whole group, with this number.
    ///
    /// # Errors
    /// If it has more than 4 GiB.
    pub(super) fn seal(&mut self, number: u64) -> io::Result<&[u8]> {
        let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "a group of more than 4 GiB");
        let entries = self.entries().len();
        let length = u32::try_from(entries).map_err(too_large)?;
        let mut sum = begun(length, number);
        sum.combine(&Hasher::new_with_initial_len(self.sum, u64::from(length)));
        let head = [
            &MAGIC[..],
            &length.to_be_bytes(),
            &number.to_be_bytes(),
            &sum.finalize().to_be_bytes(),
        ];
        for (to, from) in self.bytes.iter_mut().zip(head.into_iter().flatten()) {
            *to = *from;
        }
        Ok(&self.bytes)
    }
}

/// The CRC-32 of a whole group.
pub(super) fn checksum(length: u32, number: u64, entries: &[u8]) -> u32 {
    let mut crc = begun(length, number);
    crc.update(entries);
    crc.finalize()
}

fn begun(length: u32, number: u64) -> Hasher {
    let mut crc = Hasher::new();
    crc.update(&length.to_be_bytes());
    crc.update(&number.to_be_bytes());
    crc
}
