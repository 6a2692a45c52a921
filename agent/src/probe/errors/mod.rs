//! Errors and warnings of the last 24 hours: the kernel's log, and the journal where there is one.
//!
//! An error is a kernel message of level error or worse, or one that reports a failure whatever its level (machine
//! check, uncorrected memory error, out of memory, I/O error, Xid, …); a warning one of level warning, or a corrected
//! fault, or a program's own fault. Lines of one incident count once.

mod classify;
mod count;
mod journal;
mod kmsg;
pub mod xid;

use std::time::Instant;

pub use classify::{Class, Weight, classify};
use count::{Clocks, ErrorLog};
pub use count::{Errors, LastError, XidSeen};
use journal::Journal;
use kmsg::Kmsg;

use super::host::HostProbe;
use super::kept::Kept;
use super::{Roots, line};

/// Reads `/dev/kmsg` and the journal, and remembers.
#[derive(Debug)]
pub struct ErrorsProbe {
    roots: Roots,
    kmsg: Kmsg,
    host: HostProbe,
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
            journal: Journal::new(roots, None),
            roots: roots.clone(),
            kept: kept.into(),
            log: None,
            saved: None,
            said: false,
        }
    }

    /// What is known; none if the kernel's log cannot be read. `unix` is the wall clock in seconds.
    #[must_use]
    pub fn read(&mut self, now: Instant, unix: u64) -> Option<Errors> {
        let clocks = Clocks {
            unix,
            uptime: self.host.uptime()?,
        };
        let boot = line(&self.roots.proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let kept = &self.kept;
        let log = self
            .log
            .get_or_insert_with(|| kept.load().unwrap_or_else(|| ErrorLog::new(unix)));
        log.boot(&boot);
        if let Err(e) = self.kmsg.read(|r| log.kernel(r, clocks)) {
            if !std::mem::replace(&mut self.said, true) {
                tracing::warn!(
                    "errors and warnings are not counted: {}: {e}",
                    self.roots.dev.join("kmsg").display()
                );
            }
            return None;
        }
        self.said = false;
        self.journal.read(log, now, unix);
        if self.saved.as_ref() != Some(log) {
            match self.kept.save(log) {
                Ok(()) => self.saved = Some(log.clone()),
                Err(e) => tracing::warn!("counts of errors are not kept over a restart: {e}"),
            }
        }
        Some(log.counts(unix))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

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
}
