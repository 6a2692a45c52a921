//! A kernel file that is read again and again: opened once, read into a buffer that is kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// More than any of the files in use; a broken driver must not fill our memory.
const LIMIT: usize = 1 << 20;
/// The kernel gives what is this small in one piece: a shorter answer is all there is.
const PIECE: usize = 512;

/// One file of `/proc` or `/sys`.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
}

impl Source {
    /// Nothing is opened before the first read.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            buffer: Vec::new(),
        }
    }

    /// Where it reads.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file, freshly read.
    ///
    /// # Errors
    /// IO. A file whose device went away is opened anew once.
    pub fn read(&mut self) -> io::Result<&[u8]> {
        self.read_at_most(LIMIT)
    }

    /// The first `limit` bytes, freshly read (the kernel still renders the whole of a small file). A `limit` of up to 512
    /// is for files of one record: loads, pressures, a driver's number.
    ///
    /// # Errors
    /// IO.
    pub fn read_at_most(&mut self, limit: usize) -> io::Result<&[u8]> {
        if let Some(file) = &self.file
            && fill(file, &mut self.buffer, limit).is_ok()
        {
            return Ok(&self.buffer);
        }
        self.file = None;
        let file = File::open(&self.path)?;
        fill(&file, &mut self.buffer, limit)?;
        self.file = Some(file);
        Ok(&self.buffer)
    }

    /// The number that the file holds.
    #[must_use]
    pub fn number(&mut self) -> Option<i64> {
        signed(self.read_at_most(64).ok()?.trim_ascii())
    }
}

fn fill(file: &File, buffer: &mut Vec<u8>, limit: usize) -> io::Result<()> {
    buffer.resize(buffer.capacity().clamp(1024, LIMIT).min(limit), 0);
    let mut filled = 0usize;
    loop {
        if buffer.len() == filled {
            if filled >= limit {
                break;
            }
            buffer.resize(filled.saturating_mul(2).min(limit), 0);
        }
        let Some(space) = buffer.get_mut(filled..) else {
            break;
        };
        match file.read_at(space, u64::try_from(filled).unwrap_or(u64::MAX)) {
            Ok(0) => break,
            Ok(n) => {
                let whole = limit <= PIECE && n < space.len();
                filled = filled.saturating_add(n);
                if whole {
                    break;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    buffer.truncate(filled);
    Ok(())
}

/// An unsigned decimal number, nothing else around it.
#[must_use]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.checked_sub(b'0').filter(|d| *d < 10)?;
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A decimal number with an optional minus sign.
#[must_use]
pub fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(rest) => i64::try_from(unsigned(rest)?).ok()?.checked_neg(),
        None => i64::try_from(unsigned(text)?).ok(),
    }
}

/// A decimal number with a fraction as an integer in units of 10⁻`decimals`; further digits are cut off.
#[must_use]
pub fn fixed_point(text: &[u8], decimals: u32) -> Option<u64> {
    let mut halves = text.splitn(2, |b| *b == b'.');
    let whole = unsigned(halves.next()?)?;
    let fraction = halves.next().unwrap_or_default();
    let mut value = whole;
    for i in 0..usize::try_from(decimals).ok()? {
        let digit = match fraction.get(i) {
            Some(b) => u64::from(b.checked_sub(b'0').filter(|d| *d < 10)?),
            None => 0,
        };
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    Some(value)
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// The lines of a file.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_is_read_again_after_it_changed_shrank_or_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut source = Source::new(path.clone());
        assert!(source.read().is_err());
        let long = vec![b'x'; 5000];
        std::fs::write(&path, &long).unwrap();
        assert_eq!(source.read().unwrap(), long);
        std::fs::write(&path, "12\n").unwrap();
        assert_eq!(source.read().unwrap(), b"12\n");
        assert_eq!(source.number(), Some(12));
        assert_eq!(source.read_at_most(1).unwrap(), b"1");
    }

    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"1x", b"-1", b" 1"] {
            assert_eq!(unsigned(bad), None);
        }
        assert_eq!(signed(b"-5"), Some(-5));
        assert_eq!(fixed_point(b"16.50", 6), Some(16_500_000));
        assert_eq!(fixed_point(b"0.1234567", 6), Some(123_456));
        assert_eq!(fixed_point(b"7", 2), Some(700));
        assert_eq!(fixed_point(b"7.x", 2), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic(text in proptest::collection::vec(any::<u8>(), 0..64), d in 0u32..20) {
            let _ = (unsigned(&text), signed(&text), fixed_point(&text, d));
            let _ = lines(&text).flat_map(words).count();
        }
    }
}
