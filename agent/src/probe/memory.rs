//! Memory of the host from `/proc/meminfo`.

use super::source::{Source, lines, unsigned, words};
use super::{Roots, percent};

/// Reads `/proc/meminfo`.
#[derive(Debug)]
pub struct MemoryProbe {
    meminfo: Source,
}

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total: u64,
    /// `MemAvailable`: what programs can still take without swapping.
    pub available: u64,
}

impl Memory {
    /// Percent of total that is not available.
    #[must_use]
    pub fn utilization(&self) -> Option<u8> {
        percent(self.total.saturating_sub(self.available), self.total)
    }
}

impl MemoryProbe {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(roots: &Roots) -> Self {
        Self {
            meminfo: Source::new(roots.proc.join("meminfo")),
        }
    }

    /// Total and available; none unless the kernel gives both.
    #[must_use]
    pub fn read(&mut self) -> Option<Memory> {
        parse(self.meminfo.read_at_most(512).ok()?)
    }
}

fn parse(text: &[u8]) -> Option<Memory> {
    let (mut total, mut available) = (None, None);
    for line in lines(text) {
        let mut words = words(line);
        match words.next() {
            Some(b"MemTotal:") => total = kibibytes(&mut words),
            Some(b"MemAvailable:") => available = kibibytes(&mut words),
            _ => {}
        }
        if let (Some(total), Some(available)) = (total, available) {
            return Some(Memory {
                total,
                available: available.min(total),
            });
        }
    }
    None
}

fn kibibytes<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    let n = unsigned(words.next()?)?;
    if words.next() == Some(b"kB") {
        n.checked_mul(1024)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_available_are_read_in_bytes() {
        let text =
            b"MemTotal:       24660164 kB\nMemFree:  1 kB\nMemAvailable:   18000000 kB\nBuffers: 1 kB\n";
        let m = parse(text).unwrap();
        assert_eq!((m.total, m.available), (24_660_164 * 1024, 18_000_000 * 1024));
        assert_eq!(m.utilization(), Some(27));
    }

    #[test]
    fn what_is_not_there_is_absent() {
        for bad in [
            &b""[..],
            b"MemTotal: 1 kB\n",
            b"MemTotal: 5 MB\nMemAvailable: 1 kB\n",
            b"MemTotal:\nMemAvailable:",
        ] {
            assert_eq!(parse(bad), None);
        }
    }
}
