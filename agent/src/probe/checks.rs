//! The site's own checks: executables in a directory, as Slurm's node health check has them. Each is run by absolute
//! path without arguments, within its time, one after the other. Exit code 0: passed, 1: degraded, more: failed; the
//! first line that it prints says why.
//!
//! And findings that root puts into a file, to rehearse what happens then.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::names_in;
use super::tool::Tool;
use crate::files::read_text;

/// Checks that are run at most, the first by name.
const MOST: usize = 32;
/// What a check may print.
const LIMIT: usize = 4096;
/// What is kept of its line.
const LINE: usize = 200;

/// Where checks are, and how often they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksConfig {
    /// Executables in it are checks; it need not exist.
    pub dir: PathBuf,
    /// Between two runs.
    pub interval: Duration,
    /// Time of each.
    pub timeout: Duration,
    /// Findings that root puts in: `code message` on each line.
    pub rehearsal: PathBuf,
}

impl Default for ChecksConfig {
    fn default() -> Self {
        Self {
            dir: "/etc/virtengine/node-agent/checks.d".into(),
            interval: Duration::from_secs(300),
            timeout: Duration::from_secs(10),
            rehearsal: "/run/virtengine-node-agent.rehearsal".into(),
        }
    }
}

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Passed,
    /// Work may suffer.
    Degraded,
    /// No new work should be given.
    Failed,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// Its file's name.
    pub name: String,
    /// What it says.
    pub verdict: Verdict,
    /// Its line, or why it could not be run.
    pub line: String,
}

/// All checks at their last run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Checks {
    /// By name.
    pub results: Vec<CheckResult>,
    /// When they were run.
    pub ran: Option<Instant>,
    /// Code and message of findings that root has put in.
    pub rehearsed: Vec<(String, String)>,
}

/// Runs them when it is time to.
#[derive(Debug)]
pub struct ChecksProbe {
    config: ChecksConfig,
    next: Option<Instant>,
    ran: Option<Instant>,
    tools: Vec<Tool>,
    results: Vec<CheckResult>,
}

impl ChecksProbe {
    /// Nothing is run yet.
    #[must_use]
    pub fn new(config: ChecksConfig) -> Self {
        Self {
            config,
            next: None,
            ran: None,
            tools: Vec::new(),
            results: Vec::new(),
        }
    }

    /// The last results, after another run if it is time to.
    #[must_use]
    pub fn read(&mut self, now: Instant) -> Checks {
        if self.next.is_none_or(|at| now >= at) {
            self.next = now.checked_add(self.config.interval);
            self.ran = Some(now);
            self.run();
        }
        Checks {
            results: self.results.clone(),
            ran: self.ran,
            rehearsed: rehearsed(&self.config.rehearsal),
        }
    }

    fn run(&mut self) {
        let dir = self.config.dir.clone();
        let names = names_in(&dir);
        let mut tools = std::mem::take(&mut self.tools);
        self.results.clear();
        let visible = names
            .into_iter()
            .filter(|n| !n.starts_with('.') && !n.ends_with('~'));
        for name in visible.take(MOST) {
            let path = dir.join(&name);
            let known = tools
                .iter()
                .position(|t| t.path() == path)
                .map(|i| tools.swap_remove(i));
            // Kept, because one that hangs in the kernel is not started a second time.
            let mut tool = known.unwrap_or_else(|| Tool::new(path.clone(), self.config.timeout, LIMIT));
            let (verdict, line) = match unsafe_to_run(&dir, &path) {
                Some(why) => (Verdict::Failed, why),
                None => run(&mut tool),
            };
            let line = line
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(LINE)
                .collect();
            self.results.push(CheckResult { name, verdict, line });
            self.tools.push(tool);
        }
    }
}

fn run(tool: &mut Tool) -> (Verdict, String) {
    match tool.ask::<&str>(&[]) {
        Ok((code, printed)) => {
            let text = String::from_utf8_lossy(&printed);
            let line = text.lines().next().unwrap_or_default().trim().to_owned();
            let verdict = match code {
                0 => Verdict::Passed,
                1 => Verdict::Degraded,
                _ => Verdict::Failed,
            };
            (
                verdict,
                if line.is_empty() {
                    format!("ended with {code}")
                } else {
                    line
                },
            )
        }
        Err(e) => (Verdict::Failed, e.to_string()),
    }
}

/// Why a check is not run: others could have changed it.
fn unsafe_to_run(dir: &Path, path: &Path) -> Option<String> {
    let ours = rustix::process::geteuid().as_raw();
    for (path, what) in [(dir, "the directory"), (path, "the file")] {
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) => return Some(format!("{what} cannot be read: {e}")),
        };
        if (meta.uid() != 0 && meta.uid() != ours) || writable_by_others(&meta) {
            return Some(format!(
                "not run: others than root may write {what} (chown root, chmod go-w)"
            ));
        }
    }
    let executable = fs::metadata(path).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0);
    (!executable).then(|| "not run: it is no executable file (chmod +x)".to_owned())
}

fn writable_by_others(meta: &Metadata) -> bool {
    meta.mode() & 0o022 != 0
}

/// Findings that root has put in; whoever else owns or may write the file is not heard.
fn rehearsed(path: &Path) -> Vec<(String, String)> {
    let by_root =
        fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.uid() == 0 && !writable_by_others(&m));
    if !by_root {
        return Vec::new();
    }
    let text = read_text(path, 64 << 10).unwrap_or_default();
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .take(MOST)
        .map(|l| l.split_once(char::is_whitespace).unwrap_or((l, "")))
        .map(|(code, message)| (code.to_owned(), message.trim().chars().take(LINE).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn probe(dir: &Path) -> ChecksProbe {
        let checks = dir.join("checks.d");
        fs::create_dir_all(&checks).unwrap();
        mode(&checks, 0o755);
        ChecksProbe::new(ChecksConfig {
            dir: checks,
            timeout: Duration::from_secs(3),
            rehearsal: dir.join("rehearsal"),
            ..ChecksConfig::default()
        })
    }

    fn check(dir: &Path, name: &str, script: &str) {
        let path = dir.join("checks.d").join(name);
        crate::stand_in::stand_in(&path, &format!("#!/bin/sh\n{script}\n"));
    }

    #[test]
    fn exit_codes_and_lines_are_taken_and_what_hangs_or_floods_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let mut p = probe(dir.path());
        for (name, script) in [
            ("10-good", "echo fine"),
            ("20-slow-disk", "echo scratch is slow; echo more; exit 1"),
            ("30-no-mount", "exit 3"),
            ("40-hangs", "sleep 60"),
            ("50-floods", "yes"),
            ("60-killed", "kill -9 $$"),
        ] {
            check(dir.path(), name, script);
        }
        let now = Instant::now();
        let checks = p.read(now);
        let said: Vec<(&str, Verdict, &str)> = checks
            .results
            .iter()
            .map(|r| (r.name.as_str(), r.verdict, r.line.as_str()))
            .collect();
        assert_eq!(said[0], ("10-good", Verdict::Passed, "fine"));
        assert_eq!(said[1], ("20-slow-disk", Verdict::Degraded, "scratch is slow"));
        assert_eq!(said[2], ("30-no-mount", Verdict::Failed, "ended with 3"));
        for (n, word) in [(3, "did not end within"), (4, "printed more than"), (5, "signal")] {
            assert!(
                said[n].1 == Verdict::Failed && said[n].2.contains(word),
                "{:?}",
                said[n]
            );
        }
        // Not again before its time; then what is mended has passed.
        check(dir.path(), "20-slow-disk", "exit 0");
        assert_eq!(p.read(now), checks);
        let later = p.read(now + Duration::from_secs(300));
        assert_eq!(later.results[1].verdict, Verdict::Passed);
    }

    #[test]
    fn a_check_that_others_could_have_changed_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut p = probe(dir.path());
        let ran = dir.path().join("ran");
        let script = format!("touch {}", ran.display());
        for (name, bits) in [("open", 0o777), ("plain", 0o644)] {
            check(dir.path(), name, &script);
            mode(&dir.path().join("checks.d").join(name), bits);
        }
        check(dir.path(), ".hidden", &script);
        let results = p.read(Instant::now()).results;
        assert_eq!(results.len(), 2);
        assert!(
            results
                .iter()
                .all(|r| r.verdict == Verdict::Failed && r.line.starts_with("not run"))
        );
        mode(&dir.path().join("checks.d"), 0o777);
        check(dir.path(), "good", &script);
        let results = p.read(Instant::now() + Duration::from_secs(301)).results;
        assert!(
            results.iter().all(|r| r.verdict == Verdict::Failed),
            "{results:?}"
        );
        assert!(!ran.exists());
        assert!(
            ChecksProbe::new(ChecksConfig {
                dir: dir.path().join("none"),
                ..ChecksConfig::default()
            })
            .read(Instant::now())
            .results
            .is_empty()
        );
    }

    #[test]
    fn only_root_rehearses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rehearsal");
        fs::write(&path, "# a drill\ngpu_lost  GPU 3 of the drill\n\ncpu_hot\n").unwrap();
        mode(&path, 0o644);
        let root = rustix::process::geteuid().is_root();
        let expected = [
            ("gpu_lost".to_owned(), "GPU 3 of the drill".to_owned()),
            ("cpu_hot".to_owned(), String::new()),
        ];
        assert_eq!(
            rehearsed(&path),
            if root { expected.to_vec() } else { Vec::new() }
        );
        mode(&path, 0o666);
        assert!(rehearsed(&path).is_empty());
        if root {
            mode(&path, 0o644);
            std::os::unix::fs::chown(&path, Some(1001), None).unwrap();
            assert!(rehearsed(&path).is_empty());
        }
    }
}
