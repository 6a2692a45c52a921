//! Errors and warnings of the last 24 hours: the kernel's log, and the journal where there is one.
//!
//! An error is a kernel message of level error or worse, or one that reports a failure whatever its level (machine
//! check, uncorrected memory error, out of memory, I/O error, Xid, …); a warning one of level warning, or a corrected
//! fault, or a program's own fault. Lines of one incident count once.

mod classify;
mod count;
mod faults;
mod journal;
mod kmsg;
mod told;
pub mod xid;

use std::time::{Duration, Instant};

pub use classify::{Class, Weight, classify};
use count::{Clocks, ErrorLog};
use journal::Journal;
use kmsg::Kmsg;
pub use told::{Errors, LastError, LinkSeen, XidSeen};

use super::host::HostProbe;
use super::kept::Kept;
use super::recent::Recent;
use super::{Roots, boot_id};

/// Where only more has been read, and nothing counted, that is kept this often: after a restart those messages are read again,
/// and not counted again.
const RARELY: Duration = Duration::from_secs(300);
/// At most so many of them: fewer than the kernel holds (some 4,000), or they would look lost.
const READ_AGAIN: u64 = 200;

/// Reads `/dev/kmsg` and the journal, and remembers.
#[derive(Debug)]
pub struct ErrorsProbe {
    roots: Roots,
    kmsg: Kmsg,
    host: HostProbe,
    uptime: Recent<u64>,
    /// This boot's id, which outlives every process of it.
    boot: Option<String>,
    journal: Journal,
    kept: Kept,
    log: Option<ErrorLog>,
    /// As it was kept last, and when.
    saved: Option<(ErrorLog, Instant)>,
    said: bool,
}

impl ErrorsProbe {
    /// `kept`: where the counts are kept.
    #[must_use]
    pub fn new(roots: &Roots, kept: impl Into<Kept>) -> Self {
        Self {
            kmsg: Kmsg::new(&roots.dev.join("kmsg")),
            host: HostProbe::new(roots),
            uptime: Recent::default(),
            boot: None,
            journal: Journal::new(roots, None),
            roots: roots.clone(),
            kept: kept.into(),
            log: None,
            saved: None,
            said: false,
        }
    }

    /// Shares the uptime that it reads with others.
    #[must_use]
    pub fn sharing(self, uptime: Recent<u64>) -> Self {
        Self { uptime, ..self }
    }

    /// What is known; none if neither the kernel's log nor a journal can be read. `unix` is the wall clock in seconds.
    #[must_use]
    pub fn read(&mut self, now: Instant, unix: u64) -> Option<Errors> {
        let clocks = Clocks {
            unix,
            uptime: self.uptime.or(now, || self.host.uptime())?,
        };
        if self.boot.is_none() {
            self.boot = boot_id(&self.roots.proc);
        }
        let kept = &self.kept;
        let log = self.log.get_or_insert_with(|| {
            kept.load()
                .map_or_else(|| ErrorLog::new(unix), ErrorLog::taken_over)
        });
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
        if !self.saved.as_mut().is_some_and(|saved| suffices(log, saved, now)) {
            match self.kept.save(log) {
                Ok(()) => self.saved = Some((log.clone(), now)),
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

/// Whether what was kept does for now.
fn suffices(log: &ErrorLog, (saved, at): &mut (ErrorLog, Instant), now: Instant) -> bool {
    let more = log.next().saturating_sub(saved.next());
    let rarely = more < READ_AGAIN && now.saturating_duration_since(*at) < RARELY;
    (more == 0 || rarely) && log.counts_as(saved)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const NOW: u64 = 1_795_303_803;

    /// A host whose kernel has no log yet.
    fn host(dir: &Path) -> Roots {
        let roots = Roots::below(dir);
        for folder in [roots.proc.join("sys/kernel/random"), roots.dev.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(roots.proc.join("uptime"), "10000.00 1.0\n").unwrap();
        fs::write(roots.proc.join("sys/kernel/random/boot_id"), "b1\n").unwrap();
        roots
    }

    #[test]
    fn counts_survive_a_restart_and_absence_is_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        let roots = host(dir.path());
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
    fn messages_that_do_not_count_are_no_reason_to_write_and_are_read_again_after_a_crash() {
        use std::io::Write as _;

        let dir = tempfile::tempdir().unwrap();
        let roots = host(dir.path());
        let (state, start) = (dir.path().join("errors.json"), Instant::now());
        let kmsg = roots.dev.join("kmsg");
        fs::write(&kmsg, "").unwrap();
        let mut written = 0u64;
        let mut write = |level: u8, count: u64| {
            let mut file = fs::OpenOptions::new().append(true).open(&kmsg).unwrap();
            for _ in 0..count {
                let micros = 9_000_000_000 + written * 2_000_000;
                writeln!(file, "{level},{written},{micros},-;usb 1-1: words").unwrap();
                written += 1;
            }
        };
        let kept = || -> ErrorLog { serde_json::from_str(&fs::read_to_string(&state).unwrap()).unwrap() };
        let mut probe = ErrorsProbe::new(&roots, state.clone());
        let mut look = |second| {
            let found = probe
                .read(start + Duration::from_secs(second), NOW + second)
                .unwrap();
            (found.errors, kept().next())
        };
        write(6, 3);
        assert_eq!(look(0), (0, 3));
        write(6, 2);
        assert_eq!(look(30), (0, 3), "nothing was counted");
        write(3, 1);
        assert_eq!(look(60), (1, 6));
        write(6, READ_AGAIN);
        assert_eq!(look(90), (1, 6 + READ_AGAIN), "as many as may be read again");
        write(6, 4);
        assert_eq!([look(120), look(389)], [(1, 6 + READ_AGAIN); 2]);
        // It crashes here, or a moment later.
        let after = |state: &Path| {
            let mut again = ErrorsProbe::new(&roots, state.to_owned());
            let found = again.read(start, NOW + 390).unwrap();
            (found.errors, found.missed)
        };
        let copy = dir.path().join("copy.json");
        fs::copy(&state, &copy).unwrap();
        assert_eq!(after(&copy), (1, 0));
        assert_eq!(
            look(390),
            (1, 10 + READ_AGAIN),
            "five minutes after the last time"
        );
        assert_eq!(after(&state), (1, 0));
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
