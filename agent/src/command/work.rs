//! What takes its time: done on a thread of its own, one order after the other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Diagnostic;
use crate::fault;
use crate::files::{Durability, Replace, write};
use crate::helper::{self, Helper, Verb};
use crate::history::{History, summary};
use crate::probe::slurm::{Control, Turned};
use crate::probe::tool::Tool;
use crate::sample::Category;
use crate::update;

/// Enough for starting a program and reading what it prints.
const STACK: usize = 256 << 10;
/// `systemctl poweroff` returns once it is under way.
const POWEROFF: Duration = Duration::from_secs(20);
const SHUTS_DOWN: &str = "the host shuts down";
/// What the storage diagnostic writes and reads back.
const SAMPLE: usize = 1 << 20;

/// A step of an order.
#[derive(Debug)]
pub enum Work {
    /// Tell Slurm to give this node no new jobs.
    Drain(Box<Control>, String),
    /// Tell Slurm to give it jobs again.
    Resume(Box<Control>),
    /// Switch the host off: by the helper if there is one, else with this program.
    Poweroff(Option<Helper>, PathBuf),
    /// Write, synchronise and read in this directory.
    Storage(PathBuf),
    /// Sum up the samples that are kept in this directory and not older (UNIX seconds).
    History(PathBuf, u64),
    /// Fetch a release, prove it, have it run next.
    Update(Box<Update>),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Done.
    Done(String),
    /// A diagnostic is done: one line, and all of it.
    Found(Diagnostic, String, Value),
    /// It will not work.
    Failed(String),
    /// It may work later.
    Again(String),
    /// It goes on in the program that runs next.
    Restart,
}

/// A release that was ordered.
#[derive(Debug)]
pub struct Update {
    /// Which.
    pub order: update::Order,
    /// Who signs releases.
    pub key: minisign_verify::PublicKey,
    /// CAs of download servers.
    pub ca_file: PathBuf,
    /// Where versions lie.
    pub versions: update::Versions,
    /// What runs.
    pub present: semver::Version,
}

impl Work {
    /// Begins it on a thread; `done` is called there at the end.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn begin(self, done: impl FnOnce(End) + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new().name("order".into()).stack_size(STACK);
        thread.spawn(move || done(self.carry_out())).map(drop)
    }

    /// Does it; blocks.
    #[must_use]
    pub fn carry_out(self) -> End {
        match self {
            Self::Drain(mut control, reason) => turned(control.drain(&reason)),
            Self::Resume(mut control) => turned(control.resume()),
            Self::Poweroff(Some(helper), _) => match helper.ask(&Verb::Poweroff {}) {
                Ok(_) => End::Done(SHUTS_DOWN.to_owned()),
                Err(e) => End::Failed(e),
            },
            Self::Poweroff(None, program) => match Tool::new(program, POWEROFF, 4096).run(&["poweroff"]) {
                Ok(_) => End::Done(SHUTS_DOWN.to_owned()),
                Err(e) => End::Failed(format!("{e}; {}", helper::REMEDY)),
            },
            Self::Storage(dir) => match storage(&dir) {
                Ok(text) => {
                    let report = json!({ "result": text });
                    End::Found(Diagnostic::Storage, text, report)
                }
                Err(e) => End::Failed(e),
            },
            Self::History(dir, oldest) => {
                let (text, report) = history(&dir, oldest);
                End::Found(Diagnostic::History, text, report)
            }
            Self::Update(update) => take_release(&update),
        }
    }
}

fn turned(result: Result<Turned, String>) -> End {
    match result {
        Ok(turned) => End::Done(turned.to_string()),
        Err(e) => End::Again(e),
    }
}

fn take_release(update: &Update) -> End {
    let (release, program) = match update::fetch(&update.order.url, &update.ca_file) {
        Ok(fetched) => fetched,
        Err(e) => return End::Again(e),
    };
    fault::point("update.fetched");
    let staged = update::stage(
        &update.versions,
        &update.order,
        (&release, &program),
        &update.key,
        &update.present,
    );
    match staged {
        Ok(()) => End::Restart,
        // A full disk may be emptied.
        Err(e @ update::StageError::File(_)) => End::Again(e.to_string()),
        Err(e) => End::Failed(e.to_string()),
    }
}

/// Times of writing, synchronising and reading a mebibyte.
fn storage(dir: &Path) -> Result<String, String> {
    let path = dir.join("diagnostic");
    let sample = vec![0x5a; SAMPLE];
    let start = Instant::now();
    let written = write(&path, &sample, 0o600, Replace::Yes, Durability::Synced);
    let wrote = start.elapsed();
    let start = Instant::now();
    let read = std::fs::read(&path);
    let took = start.elapsed();
    std::fs::remove_file(&path).ok();
    written.map_err(|e| e.to_string())?;
    if read.map_err(|e| e.to_string())? != sample {
        return Err(format!("{} does not give back what was written", dir.display()));
    }
    Ok(format!(
        "1 MiB in {}: written and synchronised in {} ms, read in {} ms",
        dir.display(),
        wrote.as_millis(),
        took.as_millis()
    ))
}

/// What is kept of each category; of one that cannot be read why not.
fn history(dir: &Path, oldest: u64) -> (String, Value) {
    let (mut report, mut words) = (Map::new(), Vec::new());
    for category in Category::ALL {
        let Value::String(name) = json!(category) else {
            continue;
        };
        let found = match History::read(dir, category, oldest) {
            Ok(samples) => summary(category, &samples),
            Err(e) => Some((json!({ "error": e.to_string() }), format!("{name}: {e}"))),
        };
        if let Some((found, line)) = found {
            report.insert(name, found);
            words.push(line);
        }
    }
    let line = if words.is_empty() {
        "no samples are kept yet".to_owned()
    } else {
        words.join(", ")
    };
    (line, json!({ "history": report }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_written_and_read_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let End::Found(Diagnostic::Storage, said, report) = Work::Storage(dir.path().to_owned()).carry_out()
        else {
            panic!()
        };
        assert_eq!(report, json!({ "result": said }));
        assert!(
            said.starts_with("1 MiB in ") && said.contains("read in"),
            "{said}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let gone = Work::Storage(dir.path().join("none")).carry_out();
        assert!(matches!(gone, End::Failed(_)), "{gone:?}");
    }

    #[test]
    fn history_says_what_is_kept_and_what_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let of = || match Work::History(dir.path().to_owned(), 0).carry_out() {
            End::Found(Diagnostic::History, line, report) => (line, report),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            of(),
            ("no samples are kept yet".to_owned(), json!({ "history": {} }))
        );
        std::fs::write(dir.path().join("temperature"), "0 100 55 -\n1 160 57 -\n").unwrap();
        std::fs::create_dir(dir.path().join("capacity")).unwrap();
        let (line, report) = of();
        assert!(line.ends_with("cpu_celsius 55 to 57"), "{line}");
        let history = &report["history"];
        assert_eq!(history["temperature"]["samples"], 2);
        assert!(history["capacity"]["error"].is_string(), "{report}");
    }

    #[test]
    fn the_host_is_switched_off_by_a_program_with_one_argument() {
        let dir = tempfile::tempdir().unwrap();
        let (program, called) = (dir.path().join("systemctl"), dir.path().join("called"));
        let text = format!("#!/bin/sh\necho \"$# $*\" > {}\n", called.display());
        crate::stand_in::stand_in(&program, &text);
        assert_eq!(
            Work::Poweroff(None, program).carry_out(),
            End::Done("the host shuts down".into())
        );
        assert_eq!(std::fs::read_to_string(called).unwrap(), "1 poweroff\n");
    }
}
