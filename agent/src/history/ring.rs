use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Sample;
use crate::files::{Durability, FileError, Replace, at, read_text, write};

/// Width of a line, with its end: a number, a time and at most five figures.
const LINE: usize = 128;
/// More than the longest file: 10,000 lines.
const LIMIT: u64 = 4 << 20;

/// A file of a fixed number of lines; the oldest is replaced by the newest.
#[derive(Debug)]
pub(super) struct Ring {
    path: PathBuf,
    file: File,
    lines: u64,
    next: u64,
    /// Number of the oldest sample that may still be there.
    tail: u64,
    /// That one is not older than this (UNIX seconds): while this is young enough, nothing need be read to know that it stays.
    tail_at: u64,
}

impl Ring {
    /// Opens or makes a file of `lines` lines. What it holds stays, but for what is older than `oldest` (UNIX seconds)
    /// and what does not fit.
    pub(super) fn open(path: &Path, lines: u32, oldest: u64) -> Result<Self, FileError> {
        let lines = u64::from(lines.max(1));
        let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
        let (all, size) = load(path)?;
        let mut kept: Vec<(u64, Sample)> = all.iter().filter(|(_, s)| s.at >= oldest).cloned().collect();
        kept.drain(..kept.len().saturating_sub(wanted));
        let next = all.last().map_or(0, |(n, _)| n.saturating_add(1));
        let right_size = size == wanted.saturating_mul(LINE);
        if !right_size || kept.len() != all.len() {
            // Full size from the start: later lines need no space.
            let mut text = vec![blank(); wanted];
            for (n, sample) in &kept {
                let place = n.checked_rem(lines).and_then(|i| usize::try_from(i).ok());
                if let Some(slot) = place.and_then(|i| text.get_mut(i)) {
                    *slot = encode(*n, sample);
                }
            }
            write(path, &text.concat(), 0o644, Replace::Yes, Durability::Atomic)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(at("open", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            lines,
            next,
            tail: kept.first().map_or(next, |(n, _)| *n),
            tail_at: 0,
        })
    }

    /// Replaces the oldest line. Not synchronised: a power cut costs the last samples.
    pub(super) fn push(&mut self, sample: &Sample) -> Result<(), FileError> {
        self.put(self.next, &encode(self.next, sample))?;
        self.next = self.next.saturating_add(1);
        Ok(())
    }

    /// Blanks what is older than `oldest` (UNIX seconds). Where the clock was set back, what was sampled before stays for
    /// as much longer.
    pub(super) fn forget(&mut self, oldest: u64) -> Result<(), FileError> {
        // What has been replaced is gone.
        self.tail = self.tail.max(self.next.saturating_sub(self.lines));
        while self.tail < self.next && self.tail_at < oldest {
            // Another number, or none: torn, or blank already.
            if let Some((_, sample)) = self.held(self.tail)?.filter(|(n, _)| *n == self.tail) {
                if sample.at >= oldest {
                    self.tail_at = sample.at;
                    break;
                }
                self.put(self.tail, &blank())?;
            }
            self.tail = self.tail.saturating_add(1);
        }
        Ok(())
    }

    /// The line where sample `number` lies.
    fn held(&self, number: u64) -> Result<Option<(u64, Sample)>, FileError> {
        let mut line = [0; LINE];
        match self.file.read_exact_at(&mut line, self.place(number)) {
            Ok(()) => Ok(std::str::from_utf8(&line).ok().and_then(decode)),
            // Somebody has cut the file.
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(at("read", &self.path)(e)),
        }
    }

    fn put(&self, number: u64, line: &[u8]) -> Result<(), FileError> {
        self.file
            .write_all_at(line, self.place(number))
            .map_err(at("write", &self.path))
    }

    /// Where in the file sample `number` lies.
    fn place(&self, number: u64) -> u64 {
        let width = u64::try_from(LINE).unwrap_or(u64::MAX);
        number.checked_rem(self.lines).unwrap_or(0).saturating_mul(width)
    }
}

/// Samples not older than `oldest`, oldest first; empty if there is no file.
pub(super) fn read(path: &Path, oldest: u64) -> Result<Vec<Sample>, FileError> {
    let (all, _) = load(path)?;
    Ok(all
        .into_iter()
        .map(|(_, s)| s)
        .filter(|s| s.at >= oldest)
        .collect())
}

/// Lines that can be read, by number, and the size of the file. A line torn by a power cut is left out.
fn load(path: &Path) -> Result<(Vec<(u64, Sample)>, usize), FileError> {
    let text = match read_text(path, LIMIT) {
        Ok(text) => text,
        Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(e) => return Err(e),
    };
    let mut all: Vec<(u64, Sample)> = text.lines().filter_map(decode).collect();
    all.sort_by_key(|(n, _)| *n);
    Ok((all, text.len()))
}

fn blank() -> Vec<u8> {
    pad(String::new())
}

fn pad(mut line: String) -> Vec<u8> {
    let width = LINE.saturating_sub(1);
    line.truncate(width);
    let mut bytes = line.into_bytes();
    bytes.resize(width, b' ');
    bytes.push(b'\n');
    bytes
}

fn encode(number: u64, sample: &Sample) -> Vec<u8> {
    let mut line = String::with_capacity(LINE);
    // Writing to a String does not fail.
    write!(line, "{number} {}", sample.at).ok();
    for figure in &sample.figures {
        match figure {
            Some(n) => write!(line, " {n}").ok(),
            None => write!(line, " -").ok(),
        };
    }
    pad(line)
}

fn decode(line: &str) -> Option<(u64, Sample)> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let at = words.next()?.parse().ok()?;
    let figures = words
        .map(|w| match w {
            "-" => Some(None),
            n => n.parse().ok().map(Some),
        })
        .collect::<Option<_>>()?;
    Some((number, Sample { at, figures }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(at: u64) -> Sample {
        Sample {
            at,
            figures: vec![Some(i64::MIN), None, Some(i64::MAX), Some(0)],
        }
    }

    #[test]
    fn the_widest_line_fits() {
        let widest = Sample {
            at: u64::MAX,
            figures: vec![Some(i64::MIN); 4],
        };
        assert_eq!(encode(u64::MAX, &widest).len(), LINE);
        assert_eq!(
            decode(std::str::from_utf8(&encode(u64::MAX, &widest)).unwrap()),
            Some((u64::MAX, widest))
        );
    }

    #[test]
    fn a_torn_line_and_a_file_of_rubbish_lose_only_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let mut ring = Ring::open(&path, 4, 0).unwrap();
        for n in 0..3 {
            ring.push(&sample(n)).unwrap();
        }
        ring.file.write_all_at(b"1 x", 128).unwrap();
        assert_eq!(read(&path, 0).unwrap().len(), 2);
        std::fs::write(&path, "rubbish").unwrap();
        Ring::open(&path, 4, 0).unwrap().push(&sample(9)).unwrap();
        assert_eq!(read(&path, 0).unwrap(), [sample(9)]);
    }

    #[test]
    fn a_sample_goes_at_its_age_and_not_only_for_a_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        let mut ring = Ring::open(&path, 8, 0).unwrap();
        for n in [10, 20, 30, 40] {
            ring.push(&sample(n)).unwrap();
        }
        // A torn line is passed over.
        ring.file.write_all_at(b"1 x", 128).unwrap();
        ring.forget(30).unwrap();
        assert_eq!(read(&path, 0).unwrap(), [sample(30), sample(40)]);
        ring.forget(41).unwrap();
        assert!(read(&path, 0).unwrap().is_empty());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 * 128);
        ring.push(&sample(50)).unwrap();
        // One that goes on with it forgets as well, and one whose file was cut does not fail.
        let mut ring = Ring::open(&path, 8, 0).unwrap();
        ring.push(&sample(60)).unwrap();
        ring.forget(55).unwrap();
        assert_eq!(read(&path, 0).unwrap(), [sample(60)]);
        ring.file.set_len(0).unwrap();
        ring.forget(100).unwrap();
    }

    proptest! {
        #[test]
        fn the_newest_samples_stay_over_restarts_and_other_bounds(
            runs in proptest::collection::vec((1u32..20, 0u64..30, 1u64..30), 1..6)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("r");
            let mut model: Vec<Sample> = Vec::new();
            let mut clock = 0u64;
            for (lines, pushes, retention) in runs {
                let oldest = clock.saturating_sub(retention);
                let mut ring = Ring::open(&path, lines, oldest).unwrap();
                model.retain(|s| s.at >= oldest);
                for _ in 0..pushes {
                    let oldest = clock.saturating_sub(retention);
                    ring.forget(oldest).unwrap();
                    model.retain(|s| s.at >= oldest);
                    ring.push(&sample(clock)).unwrap();
                    model.push(sample(clock));
                    clock += 1;
                }
                let bound = usize::try_from(lines).unwrap();
                model.drain(..model.len().saturating_sub(bound));
                prop_assert_eq!(read(&path, 0).unwrap(), model.clone());
                prop_assert_eq!(std::fs::metadata(&path).unwrap().len(), u64::from(lines) * 128);
            }
        }
    }
}
