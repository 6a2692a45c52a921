use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::Group;
use super::draft::{Draft, HEAD, MAGIC, checksum};
use crate::fault;

/// A file grows by so much at a time, written as zeros: a group that only overwrites is on disk without a word of the file
/// system's own journal.
const STEP: u64 = 1 << 20;
/// A file grows no further: by then SQLite has not committed anything for seconds.
pub(super) const MOST: u64 = 64 << 20;

/// One file of groups, their numbers rising from its beginning to where the newest ends. What lies behind is of before and
/// has lower numbers.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    /// None after a failure: it is opened anew by the next group.
    file: Option<File>,
    /// Where the next group goes.
    at: u64,
    /// Bytes that the file has.
    size: u64,
    /// Number of the newest group; 0: there is none.
    last: u64,
}

impl Segment {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path,
            file: Some(file),
            at: 0,
            size,
            last: 0,
        })
    }

    /// Reads its groups; the next one goes behind them.
    pub(super) fn read(&mut self) -> io::Result<Vec<Group>> {
        let groups = read_file(&self.path)?;
        let bytes = |g: &Group| HEAD.saturating_add(g.entries.len());
        let all: usize = groups.iter().map(bytes).sum();
        self.at = u64::try_from(all).unwrap_or(u64::MAX);
        self.last = groups.last().map_or(0, |g| g.number);
        Ok(groups)
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn len(&self) -> u64 {
        self.at
    }

    /// As after a failure.
    #[cfg(test)]
    pub(super) fn lose(&mut self) {
        self.file = None;
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next group goes to its beginning.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        self.last = 0;
    }

    pub(super) fn append(&mut self, number: u64, group: &mut Draft) -> io::Result<()> {
        let written = self.put(number, group);
        if written.is_err() {
            // What of it reached the disk is unknown. The next one overwrites it.
            self.file = None;
        }
        written
    }

    fn put(&mut self, number: u64, group: &mut Draft) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = open(&self.path)?;
                if let Some(dir) = self.path.parent() {
                    File::open(dir)?.sync_all()?;
                }
                self.size = file.metadata()?.len();
                if self.size < self.at {
                    // Somebody has put another file there. What the former held is still in memory.
                    self.at = 0;
                }
                none.insert(file)
            }
        };
        let after = self.at.saturating_add(group.len());
        if after > MOST {
            let what = "the intake journal is full: the store has not taken anything in for long";
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        while self.size < after {
            let zeros = vec![0; usize::try_from(STEP).unwrap_or_default()];
            file.write_all_at(&zeros, self.size)?;
            self.size = self.size.saturating_add(STEP);
        }
        file.write_all_at(group.seal(number)?, self.at)?;
        fault::point("spool.written");
        file.sync_data()?;
        self.at = after;
        self.last = number;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(path)
}

/// The groups of a file, up to the first that is not whole or of before; none if there is no file.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<Group>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let size = file.metadata()?.len();
    let mut input = BufReader::new(file.take(size));
    let mut groups: Vec<Group> = Vec::new();
    while let Some(group) = read_group(&mut input, size)? {
        let follows = |before: &Group| before.number < group.number;
        if !groups.last().is_none_or(follows) {
            break;
        }
        groups.push(group);
    }
    Ok(groups)
}

fn read_group(input: &mut impl Read, size: u64) -> io::Result<Option<Group>> {
    let (mut magic, mut length, mut number, mut sum) = ([0; 4], [0; 4], [0; 8], [0; 4]);
    for part in [&mut magic[..], &mut length, &mut number, &mut sum] {
        if !fill(input, part)? {
            return Ok(None);
        }
    }
    let (length, number) = (u32::from_be_bytes(length), u64::from_be_bytes(number));
    if magic != MAGIC || u64::from(length) > size {
        return Ok(None);
    }
    let mut entries = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    if !fill(input, &mut entries)? || checksum(length, number, &entries) != u32::from_be_bytes(sum) {
        return Ok(None);
    }
    Ok(Some(Group { number, entries }))
}

/// False if the file ends before.
fn fill(input: &mut impl Read, part: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(part) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
