//! Warnings and errors of services that jobs depend on, from the journal. The kernel's messages are in it too, but
//! those are read at their source.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::classify::{Class, Weight};
use super::count::ErrorLog;
use crate::probe::tool::{Tool, ToolError, find};
use crate::probe::{Roots, line};

/// `journalctl` costs more than all other probes together.
const INTERVAL: Duration = Duration::from_secs(300);
/// After the first look that failed: until one succeeds the counts are not whole.
const AGAIN: Duration = Duration::from_secs(60);
/// Characters of why it failed.
const WHY: usize = 256;
const DEADLINE: Duration = Duration::from_secs(10);
const LINE: usize = 64 << 10;
/// No more of an entry than is read here; journalctl before systemd 236 does not know it.
const FIELDS: &str = "--output-fields=PRIORITY,SYSLOG_IDENTIFIER,MESSAGE";
/// Whose messages count.
const SERVICES: [&str; 13] = [
    "containerd",
    "dockerd",
    "mcelog",
    "multipathd",
    "munged",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-persistenced",
    "opensm",
    "podman",
    "rasdaemon",
    "slurmd",
    "smartd",
];

/// Asks `journalctl` now and then.
#[derive(Debug)]
pub(super) struct Journal {
    tool: Option<Tool>,
    next: Option<Instant>,
    /// Why the last look failed.
    failing: Option<String>,
    /// It answers without [`FIELDS`] alone.
    whole_entries: bool,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    micros: String,
    #[serde(rename = "PRIORITY")]
    priority: Option<String>,
    #[serde(rename = "SYSLOG_IDENTIFIER")]
    identifier: Option<String>,
    /// Text; an array of bytes if it is not UTF-8.
    #[serde(rename = "MESSAGE")]
    message: Option<serde_json::Value>,
}

impl Journal {
    /// `program`: another than the system's `journalctl`.
    #[must_use]
    pub(super) fn new(roots: &Roots, program: Option<&Path>) -> Self {
        let found = match program {
            Some(p) => Some(p.to_owned()),
            // Only systemd keeps a journal.
            None => line(&roots.proc.join("1/comm"))
                .filter(|c| c == "systemd")
                .and_then(|_| find("journalctl", None)),
        };
        Self {
            tool: found.map(|path| Tool::new(path, DEADLINE, LINE)),
            next: None,
            failing: None,
            whole_entries: false,
        }
    }

    /// Whether there is a journal to ask.
    pub(super) fn is_there(&self) -> bool {
        self.tool.is_some()
    }

    /// Why the last look failed: entries since the one before are not counted.
    pub(super) fn failing(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    /// Reads what is new, if it is time to.
    pub(super) fn read(&mut self, log: &mut ErrorLog, now: Instant, unix: u64) {
        let Some(tool) = &mut self.tool else { return };
        if self.next.is_some_and(|at| now < at) {
            return;
        }
        self.next = now.checked_add(INTERVAL);
        let mut plain: Vec<String> = ["--quiet", "--no-pager", "--output=json", "--priority=warning"]
            .map(str::to_owned)
            .to_vec();
        plain.push(match &log.cursor {
            Some(cursor) => format!("--after-cursor={cursor}"),
            None => "--since=-24h".to_owned(),
        });
        plain.extend(SERVICES.iter().map(|s| format!("SYSLOG_IDENTIFIER={s}")));
        // Without a cursor all of a day comes again: what was counted is not counted twice.
        let counted = log.journal_until.filter(|_| log.cursor.is_none());
        let before = log.cursor.clone();
        let short = (!self.whole_entries).then(|| FIELDS.to_owned());
        let arguments: Vec<String> = short.into_iter().chain(plain.iter().cloned()).collect();
        let mut result = tool.run_lines(&arguments, |line| take(log, line, unix, counted));
        // It says no, and has shown nothing: an older one is asked as it understands.
        if !self.whole_entries && log.cursor == before && matches!(result, Err(ToolError::Failed { .. })) {
            result = tool.run_lines(&plain, |line| take(log, line, unix, counted));
            self.whole_entries = result.is_ok();
        }
        match result {
            Ok(()) => {
                if self.failing.take().is_some() {
                    tracing::info!("the journal can be read again");
                }
            }
            Err(e) => {
                if log.cursor == before {
                    // A cursor that was rotated away is an error too: begin anew with the next look.
                    log.cursor = None;
                }
                // Once soon, for a cursor that was rotated away; what fails for good costs no more than what works.
                if self.failing.is_none() {
                    self.next = now.checked_add(AGAIN);
                }
                let why = e.to_string();
                let why = why.chars().map(|c| if c.is_control() { ' ' } else { c });
                let why: String = why.take(WHY).collect();
                if self.failing.is_none() {
                    tracing::warn!("errors of services are not counted: {why}");
                }
                self.failing = Some(why);
            }
        }
    }
}

fn take(log: &mut ErrorLog, line: &[u8], unix: u64, counted: Option<u64>) {
    let Ok(entry) = serde_json::from_slice::<Entry>(line) else {
        return;
    };
    log.cursor = Some(entry.cursor);
    let Ok(micros) = entry.micros.parse::<u64>() else {
        return;
    };
    if counted.is_some_and(|until| micros <= until) {
        return;
    }
    log.journal_until = log.journal_until.max(Some(micros));
    let at = micros / 1_000_000;
    let weight = match entry.priority.as_deref() {
        Some("0" | "1" | "2" | "3") => Weight::Error,
        Some("4") => Weight::Warning,
        _ => return,
    };
    let message = entry
        .message
        .as_ref()
        .and_then(serde_json::Value::as_str)
        .unwrap_or("(not text)");
    let text = format!("{}: {message}", entry.identifier.as_deref().unwrap_or("?"));
    log.add(at, unix, Class::Service, weight, &text);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: u64 = 1_795_303_803;

    #[test]
    fn new_entries_are_counted_once_from_where_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("journalctl");
        let calls = dir.path().join("calls");
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journal/slurmd.json");
        let text = format!(
            "#!/bin/sh\necho \"$*\" >> {}\ncat {}\n",
            calls.display(),
            recorded.display()
        );
        crate::stand_in::stand_in(&program, &text);
        let mut journal = Journal::new(&Roots::below(dir.path()), Some(&program));
        let mut log = ErrorLog::new(NOW);
        let now = Instant::now();
        journal.read(&mut log, now, NOW);
        journal.read(&mut log, now, NOW);
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.warnings, c.classes.get("service")), (2, 1, Some(&3)));
        assert_eq!(
            c.last.unwrap().text,
            "slurmd: error: Unable to register: Unable to contact slurm controller"
        );
        let text = format!("#!/bin/sh\necho \"$*\" >> {}\n", calls.display());
        crate::stand_in::stand_in(&program, &text);
        journal.read(&mut log, now + INTERVAL, NOW + 300);
        assert_eq!(log.counts(NOW).errors, 2);
        let calls = fs::read_to_string(calls).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        assert_eq!(calls.len(), 2);
        assert!(calls[0].contains("--since=-24h") && calls[0].contains("SYSLOG_IDENTIFIER=slurmd"));
        assert!(calls[1].contains("--after-cursor=s=aa;i=3"));
    }

    #[test]
    fn entries_before_a_failure_count_once() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("journalctl");
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journal/slurmd.json");
        // Gives all it has and fails, whatever it is asked; then fails at once, as with a cursor rotated away.
        let write = |text: &str| {
            crate::stand_in::stand_in(&program, &format!("#!/bin/sh\n{text}exit 1\n"));
        };
        let all = format!("cat {}\n", recorded.display());
        write(&all);
        let mut journal = Journal::new(&Roots::below(dir.path()), Some(&program));
        let mut log = ErrorLog::new(NOW);
        let start = Instant::now();
        journal.read(&mut log, start, NOW);
        assert!(log.cursor.is_some(), "what was read is not read again");
        assert!(journal.failing().unwrap().contains("exit status: 1"));
        write("");
        journal.read(&mut log, start + AGAIN, NOW + 60);
        assert_eq!(log.cursor, None, "it is asked again soon");
        write(&all);
        let kept: ErrorLog = serde_json::from_str(&serde_json::to_string(&log).unwrap()).unwrap();
        let mut log = kept;
        journal.read(&mut log, start + INTERVAL, NOW + 600);
        let c = log.counts(NOW + 600);
        assert_eq!((c.errors, c.warnings), (2, 1));
        crate::stand_in::stand_in(&program, "#!/bin/sh\nexit 0\n");
        journal.read(&mut log, start + INTERVAL + AGAIN, NOW + 660);
        assert_eq!(journal.failing(), None);
    }

    #[test]
    fn an_older_journalctl_is_asked_without_the_option_that_it_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let (program, calls) = (dir.path().join("journalctl"), dir.path().join("calls"));
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journal/slurmd.json");
        // As that of CentOS 7 (systemd 219).
        let text = format!(
            "#!/bin/sh\necho called >> {}\ncase \"$*\" in *--output-fields*) echo \"journalctl: unrecognized option\" >&2; exit 1;; esac\n\
             case \"$*\" in *--since*) cat {};; esac\n",
            calls.display(),
            recorded.display()
        );
        crate::stand_in::stand_in(&program, &text);
        let mut journal = Journal::new(&Roots::below(dir.path()), Some(&program));
        let (mut log, start) = (ErrorLog::new(NOW), Instant::now());
        journal.read(&mut log, start, NOW);
        assert_eq!(journal.failing(), None);
        let c = log.counts(NOW);
        assert_eq!((c.errors, c.warnings), (2, 1));
        // It is known from then on.
        journal.read(&mut log, start + INTERVAL, NOW + 300);
        assert_eq!((journal.failing(), log.counts(NOW + 300).errors), (None, 2));
        let calls = fs::read_to_string(calls).unwrap();
        assert_eq!(calls.lines().count(), 3);
        // One that fails either way says why without regard to the option.
        crate::stand_in::stand_in(&program, "#!/bin/sh\necho \"$#\" >&2\nexit 1\n");
        let mut journal = Journal::new(&Roots::below(dir.path()), Some(&program));
        journal.read(&mut log, start, NOW);
        let plain = 5 + SERVICES.len();
        assert!(journal.failing().unwrap().ends_with(&format!(": {plain}")));
    }

    #[test]
    fn without_systemd_there_is_no_journal() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Journal::new(&Roots::below(dir.path()), None).tool.is_none());
    }
}
