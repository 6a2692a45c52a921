//! Errors and warnings of the last 24 hours: the kernel's log, and the journal where there is one.
//!
//! An error is a kernel message of level error or worse, or one that reports a failure whatever its level (machine
//! check, uncorrected memory error, out of memory, I/O error, Xid, …); a warning one of level warning, or a corrected
//! fault, or a program's own fault. Lines of one incident count once.

mod classify;
mod count;
mod journal;
mod kmsg;
mod told;
pub mod xid;

use std::time::Instant;

pub use classify::{Class, Weight, classify};
use count::{Clocks, ErrorLog};
use journal::Journal;
use kmsg::Kmsg;
pub use told::{Errors, LastError, LinkSeen, XidSeen};

use super::host::HostProbe;
use super::kept::Kept;
use super::{Roots, boot_id};

/// Reads `/dev/kmsg` and the journal, and remembers.
#[derive(Debug)]
pub struct ErrorsProbe {
    roots: Roots,
    kmsg: Kmsg,
    host: HostProbe,
    /// This boot's id, which outlives every process of it.
    boot: Option<String>,
    journal: Journal,
    kept: Kept,
    log: Option<ErrorLog>,
    saved: Option<ErrorLog>,
    said: bool,
}

impl ErrorsProbe {
    /// `kept`: where the counts are kept.
    #[must_use]
    pub fn new(roots: &Roots, kept: impl Into<Kept>) -> Self {
        Self {
            kmsg: Kmsg::new(&roots.dev.join("kmsg")),
            host: HostProbe::new(roots),
            boot: None,
            journal: Journal::new(roots, None),
            roots: roots.clone(),
            kept: kept.into(),
            log: None,
            saved: None,
            said: false,
        }
    }

    /// What is known; none if neither the kernel's log nor a journal can be read. `unix` is the wall clock in seconds.
    #[must_use]
    pub fn read(&mut self, now: Instant, unix: u64) -> Option<Errors> {
        let clocks = Clocks {
            unix,
            uptime: self.host.uptime()?,
        };
        if self.boot.is_none() {
            self.boot = boot_id(&self.roots.proc);
        }
        let kept = &self.kept;
        let log = self
            .log
            .get_or_insert_with(|| kept.load().unwrap_or_else(|| ErrorLog::new(unix)));
        log.boot(self.boot.as_deref().unwrap_or_default());
        let kernel = self.kmsg.read(|r| log.kernel(r, clocks));
        if let Err(e) = &kernel {
            if !std::mem::replace(&mut self.said, true) {
                tracing::warn!(
                    "errors and warnings of the kernel are not counted: {}: {e}",
                    self.roots.dev.join("kmsg").display()
                );
            }
            if !self.journal.is_there() {
                return None;
            }
        }
        self.said = kernel.is_err();
        self.journal.read(log, now, unix);
        if self.saved.as_ref() != Some(log) {
            match self.kept.save(log) {
                Ok(()) => self.saved = Some(log.clone()),
                Err(e) => tracing::warn!("counts of errors are not kept over a restart: {e}"),
            }
        }
        Some(Errors {
            without_kernel: kernel.is_err(),
            without_journal: self.journal.failing().map(str::to_owned),
            ..log.counts(unix)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    const NOW: u64 = 1_795_303_803;

    #[test]
    fn counts_survive_a_restart_and_absence_is_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        for folder in [roots.proc.join("sys/kernel/random"), roots.dev.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(roots.proc.join("uptime"), "10000.00 1.0\n").unwrap();
        fs::write(roots.proc.join("sys/kernel/random/boot_id"), "b1\n").unwrap();
        let state = dir.path().join("errors.json");
        let now = Instant::now();
        assert_eq!(ErrorsProbe::new(&roots, state.clone()).read(now, NOW), None);
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/kmsg/gpu-node.txt");
        fs::copy(recorded, roots.dev.join("kmsg")).unwrap();
        let first = ErrorsProbe::new(&roots, state.clone()).read(now, NOW).unwrap();
        assert_eq!((first.errors, first.warnings), (6, 7));
        let second = ErrorsProbe::new(&roots, state.clone())
            .read(now, NOW + 60)
            .unwrap();
        assert_eq!((second.errors, second.since), (6, first.since));
        fs::remove_file(state.clone()).unwrap();
        fs::write(roots.dev.join("kmsg"), "").unwrap();
        let anew = ErrorsProbe::new(&roots, state).read(now, NOW).unwrap();
        assert_eq!((anew.errors, anew.since), (0, NOW));
    }

    #[test]
    fn where_the_kernels_log_cannot_be_read_the_journal_is() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(roots.proc.join("sys/kernel/random")).unwrap();
        fs::write(roots.proc.join("uptime"), "10000.00 1.0\n").unwrap();
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journal/slurmd.json");
        let program = dir.path().join("journalctl");
        let text = format!("#!/bin/sh\ncat {}\n", recorded.display());
        crate::stand_in::stand_in(&program, &text);
        let mut probe = ErrorsProbe::new(&roots, dir.path().join("errors.json"));
        probe.journal = Journal::new(&roots, Some(&program));
        let found = probe.read(Instant::now(), NOW).unwrap();
        assert!(found.without_kernel);
        assert_eq!((found.errors, found.classes.get("service")), (2, Some(&3)));
        assert!(found.missing().unwrap().contains("the kernel's log"));
    }

    #[test]
    fn counts_are_not_whole_after_a_failed_look_into_the_journal_until_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        for folder in [roots.proc.join("sys/kernel/random"), roots.dev.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(roots.proc.join("uptime"), "10000.00 1.0\n").unwrap();
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/kmsg/gpu-node.txt");
        fs::copy(recorded, roots.dev.join("kmsg")).unwrap();
        let program = dir.path().join("journalctl");
        let says = |text: &str| crate::stand_in::stand_in(&program, &format!("#!/bin/sh\n{text}\n"));
        says("echo 'No journal files were opened' >&2; exit 1");
        let mut probe = ErrorsProbe::new(&roots, dir.path().join("errors.json"));
        probe.journal = Journal::new(&roots, Some(&program));
        let start = Instant::now();
        let found = probe.read(start, NOW).unwrap();
        assert_eq!((found.errors, found.whole()), (6, None));
        let why = found.missing().unwrap();
        assert!(
            why.contains("the journal") && why.contains("No journal files") && why.contains("doctor"),
            "{why}"
        );
        // Not looked at again yet.
        says("exit 0");
        let soon = start + Duration::from_secs(30);
        assert!(probe.read(soon, NOW + 30).unwrap().whole().is_none());
        let later = start + Duration::from_secs(60);
        let found = probe.read(later, NOW + 60).unwrap();
        assert_eq!((found.whole().unwrap().errors, found.missing()), (6, None));
    }
}
