mod history;
mod text;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hpc_schema::time::UnixSeconds;
use serde_json::json;

use history::{json_samples, oldest, samples, text_samples};
use text::{text, text_outages};

use super::output::{is_lost, print, say};
use super::{ConfigArguments, Failure, Format};
use crate::clock::unix_seconds;
use crate::config::{Config, DEFAULT_STATE_DIR};
use crate::doctor::{self, Check, Grade};
use crate::state::{Lock, Outages, StateDir, Status};
use crate::status::{Verdict, judge};

/// `status`.
#[derive(Debug, Args)]
pub(super) struct StatusCommand {
    #[command(flatten)]
    config: ConfigArguments,
    /// State directory; default: as configured
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// Also print the samples that are kept of each category
    #[arg(long)]
    history: bool,
    /// Show it again every two seconds, until interrupted
    #[arg(short, long, conflicts_with_all = ["history", "output"])]
    watch: bool,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(2);
/// Looks between two at the machine itself.
const RARELY: u32 = 15;
/// Cursor to the corner, everything below away: no flicker of a screen that is cleared first.
const AGAIN: &str = "\x1b[H\x1b[J";

/// Everything that is shown.
struct Seen {
    status: Option<Status>,
    running: bool,
    verdict: Verdict,
    notes: Vec<Check>,
    outages: Outages,
    now: u64,
}

impl StatusCommand {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        // Without the default file the default place is as good a guess as any.
        let config = match (&self.state_dir, self.config.is_there()?) {
            (None, true) => Some(self.config.load()?),
            _ => None,
        };
        let dir = self
            .state_dir
            .clone()
            .or_else(|| config.as_ref().map(|c| c.state_dir.clone()))
            .unwrap_or_else(|| DEFAULT_STATE_DIR.into());
        let state = StateDir::new(&dir);
        if self.watch {
            return watch(&state, config.as_ref());
        }
        let checks = checks(config.as_ref());
        let seen = look(&state, &checks)?;
        let samples = if self.history {
            samples(&state, oldest(seen.status.as_ref(), config.as_ref(), seen.now))?
        } else {
            Vec::new()
        };
        match self.output {
            Format::Text => {
                show(&seen);
                samples.iter().for_each(text_samples);
            }
            format => {
                let mut value = json!({
                    "healthy": seen.verdict.healthy, "running": seen.running, "problems": seen.verdict.problems,
                    "notes": seen.notes, "status": seen.status, "outages": seen.outages,
                });
                if let Some(object) = value.as_object_mut().filter(|_| self.history) {
                    object.insert("history".into(), json_samples(&samples));
                }
                print(&value, format)?;
            }
        }
        Ok(if seen.verdict.healthy {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// What this machine says beside what the agent wrote down.
fn checks(config: Option<&Config>) -> Vec<Check> {
    config
        .map(|c| doctor::local(c, unix_seconds()))
        .unwrap_or_default()
}

fn look(state: &StateDir, checks: &[Check]) -> Result<Seen, Failure> {
    let running = Lock::is_held(state);
    let status = Status::load(state).map_err(|e| Failure::new(1, e))?;
    let now = unix_seconds();
    let Verdict { mut problems, .. } = judge(status.as_ref(), running, now);
    for trouble in checks.iter().filter_map(Check::trouble) {
        // Told by the agent already, from nearer.
        if !problems.iter().any(|p| p.code == trouble.code) {
            problems.push(trouble);
        }
    }
    Ok(Seen {
        status,
        running,
        verdict: Verdict::of(problems),
        notes: checks
            .iter()
            .filter(|c| c.grade == Grade::Note)
            .cloned()
            .collect(),
        outages: Outages::load(state),
        now,
    })
}

/// Redraws until interrupted; what is not a terminal gets one picture after the other.
fn watch(state: &StateDir, config: Option<&Config>) -> Result<ExitCode, Failure> {
    let before = if std::io::stdout().is_terminal() {
        AGAIN
    } else {
        ""
    };
    let mut about = checks(config);
    for turn in 1u32.. {
        let seen = look(state, &about)?;
        say!("{before}{}", UnixSeconds(seen.now));
        show(&seen);
        if is_lost() {
            break;
        }
        std::thread::sleep(PERIOD);
        // Programs of the batch system are asked for some of it.
        if turn % RARELY == 0 {
            about = checks(config);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(seen: &Seen) {
    text(seen.status.as_ref(), &seen.verdict, seen.now);
    for note in &seen.notes {
        let remedy = note.remedy.as_deref().unwrap_or_default();
        say!("note:            {}; {remedy}", note.message);
    }
    text_outages(&seen.outages, seen.now);
}
