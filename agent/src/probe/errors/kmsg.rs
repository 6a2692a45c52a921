//! The kernel's log: records of `/dev/kmsg`, each read once.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// At most this many bytes a look: a flood is read on at the next one.
const LIMIT: usize = 1 << 20;
/// The kernel's longest record.
const RECORD: usize = 8192;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// 0 emergency … 7 debug.
    pub level: u8,
    /// Who wrote it; 0: the kernel.
    pub facility: u32,
    /// Its number since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub micros: u64,
    /// The message.
    pub text: &'a str,
}

/// `level,sequence,micros,flags[,…];message`; none for continuation lines (` KEY=value`) and what cannot be read.
#[must_use]
pub(super) fn parse(line: &[u8]) -> Option<Record<'_>> {
    let line = std::str::from_utf8(line).ok()?;
    let (head, text) = line.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    Some(Record {
        level: u8::try_from(priority & 7).ok()?,
        facility: priority >> 3,
        sequence: fields.next()?.parse().ok()?,
        micros: fields.next()?.parse().ok()?,
        text: text.trim_end(),
    })
}

/// The open device.
#[derive(Debug)]
pub(super) struct Kmsg {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
}

impl Kmsg {
    /// Nothing is opened yet.
    #[must_use]
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            rest: Vec::new(),
        }
    }

    /// Hands over what is new, from the oldest record that the kernel still has. Does not wait.
    ///
    /// # Errors
    /// The device cannot be opened (it needs CAP_SYSLOG where `kernel.dmesg_restrict` is 1) or read.
    pub(super) fn read(&mut self, mut each: impl FnMut(Record<'_>)) -> io::Result<()> {
        if self.file.is_none() {
            let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
            self.file = Some(
                OpenOptions::new()
                    .read(true)
                    .custom_flags(nonblocking)
                    .open(&self.path)?,
            );
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut buffer = [0u8; RECORD];
        let mut read = 0usize;
        while read < LIMIT {
            let n = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Records were overwritten before they were read: the next read goes on with the oldest one left.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe || e.kind() == io::ErrorKind::Interrupted => {
                    continue;
                }
                Err(e) => {
                    self.file = None;
                    return Err(e);
                }
            };
            read = read.saturating_add(n);
            self.rest.extend(buffer.iter().take(n));
            hand_over(&mut self.rest, &mut each);
        }
        Ok(())
    }
}

/// The whole records; half of one stays.
fn hand_over(rest: &mut Vec<u8>, each: &mut impl FnMut(Record<'_>)) {
    let Some(last) = rest.iter().rposition(|b| *b == b'\n') else {
        // Longer than any record of the kernel.
        if rest.len() > 2 * RECORD {
            rest.clear();
        }
        return;
    };
    let after = rest.split_off(last.saturating_add(1));
    let whole = std::mem::replace(rest, after);
    crate::probe::source::lines(&whole)
        .filter_map(parse)
        .for_each(each);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn records_are_read_and_continuation_lines_are_not() {
        let r = parse(b"4,1071,139551340,-,caller=T1;NVRM: Xid (PCI:0000:3b:00): 79, pid=1; x").unwrap();
        assert_eq!(
            (r.level, r.facility, r.sequence, r.micros),
            (4, 0, 1071, 139_551_340)
        );
        assert_eq!(r.text, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1; x");
        assert_eq!(parse(b"30,5,6,-;systemd[1]: x").unwrap().facility, 3);
        for bad in [&b" SUBSYSTEM=pci"[..], b"", b"x,1,2,-;t", b"1,2;t", b"\xff\xff;"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn each_record_is_read_once_and_half_a_record_waits_for_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kmsg");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"6,0,1,-;one\n SUBSYSTEM=x\n3,1,2,-;two\n3,2,")
            .unwrap();
        let mut kmsg = Kmsg::new(&path);
        let read = |kmsg: &mut Kmsg| {
            let mut texts = Vec::new();
            kmsg.read(|r| texts.push(r.text.to_owned())).unwrap();
            texts
        };
        assert_eq!(read(&mut kmsg), ["one", "two"]);
        file.write_all(b"3,-;three\n").unwrap();
        assert_eq!(read(&mut kmsg), ["three"]);
        assert!(read(&mut kmsg).is_empty());
        assert!(Kmsg::new(&dir.path().join("none")).read(|_| {}).is_err());
    }

    #[test]
    fn the_kernels_own_log_can_be_read() {
        let mut kmsg = Kmsg::new(Path::new("/dev/kmsg"));
        let mut last = None;
        match kmsg.read(|r| {
            assert!(last.is_none_or(|l| r.sequence > l));
            last = Some(r.sequence);
        }) {
            Ok(()) => assert!(last.is_some()),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
