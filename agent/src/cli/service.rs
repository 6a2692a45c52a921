use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use hpc_schema::time::UnixSeconds;
use serde_json::json;

use super::output::{print, say};
use super::owner::as_owner_of;
use super::{ConfigArguments, Failure, Format, examples};
use crate::clock::unix_seconds;
use crate::config::DEFAULT_STATE_DIR;
use crate::random;
use crate::state::{Lock, ServiceChange, ServiceRecord, ServiceWish, StateDir};

/// The running agent looks for wishes whenever it wakes; with these it has woken several times.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_REASON: usize = 200;

/// `service …`.
#[derive(Debug, Subcommand)]
pub(super) enum Service {
    /// Whether the node is in service, and every change of that
    #[command(after_help = examples::SERVICE_SHOW)]
    Show(Show),
    /// Return a node to service that its health has taken out: at once if it is proven, without proof only by force
    #[command(after_help = examples::SERVICE_RETURN)]
    Return(Return),
}

/// `service show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    place: Place,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `service return`.
#[derive(Debug, Args)]
pub(super) struct Return {
    #[command(flatten)]
    place: Place,
    /// Without proof; it is put on record with your name and reason
    #[arg(long)]
    force: bool,
    /// Why
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
struct Place {
    #[command(flatten)]
    config: ConfigArguments,
    /// State directory; default: as configured
    #[arg(long)]
    state_dir: Option<PathBuf>,
}

impl Place {
    fn state(&self) -> Result<StateDir, Failure> {
        let dir = match (&self.state_dir, self.config.is_there()?) {
            (Some(dir), _) => dir.clone(),
            (None, false) => DEFAULT_STATE_DIR.into(),
            (None, true) => self.config.load_as_owner()?.state_dir,
        };
        as_owner_of(&[&dir])?;
        Ok(StateDir::new(&dir))
    }
}

impl Service {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Show(c) => c.run(),
            Self::Return(c) => c.run(),
        }
    }
}

impl Show {
    fn run(self) -> Result<ExitCode, Failure> {
        let record = ServiceRecord::load(&self.place.state()?).map_err(|e| Failure::new(1, e))?;
        if self.output != Format::Text {
            let value = json!({"in_service": record.out.is_none(), "out": record.out, "log": record.log});
            return print(&value, self.output);
        }
        match &record.out {
            None => say!("in service"),
            Some(out) => say!("out of service since {}: {}", UnixSeconds(out.since), out.why()),
        }
        for change in &record.log {
            line(change);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn line(c: &ServiceChange) {
    say!("{}  {:<8}  by {}: {}", UnixSeconds(c.at), c.what, c.by, c.why);
}

impl Return {
    fn run(self) -> Result<ExitCode, Failure> {
        let by = person();
        let state = self.place.state()?;
        if !Lock::is_held(&state) {
            return Err(Failure::new(
                1,
                "the agent does not run; start it: systemctl start virtengine-node-agent",
            ));
        }
        let id: [u8; 8] = random::bytes().map_err(|e| Failure::new(1, e))?;
        let wish = ServiceWish {
            id: hex::encode(id),
            at: unix_seconds(),
            by,
            force: self.force,
            reason: self
                .reason
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(LONGEST_REASON)
                .collect(),
        };
        wish.put(&state).map_err(|e| Failure::new(1, e))?;
        let answered = self.answered(&state, &wish);
        // Not to be granted when nobody waits for it any more.
        wish.withdraw(&state);
        answered
    }

    /// Waits for what comes of the wish.
    fn answered(&self, state: &StateDir, wish: &ServiceWish) -> Result<ExitCode, Failure> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let record = ServiceRecord::load(state).map_err(|e| Failure::new(1, e))?;
            let answer = record.log.iter().find(|c| c.wish.as_ref() == Some(&wish.id));
            match answer {
                Some(c) if c.what == "refused" => {
                    let force = if self.force {
                        ""
                    } else {
                        "; --force returns it without proof"
                    };
                    return Err(Failure::new(1, format_args!("not returned: {}{force}", c.why)));
                }
                Some(c) => {
                    line(c);
                    return Ok(ExitCode::SUCCESS);
                }
                None => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        Err(Failure::new(4, "the agent has not answered; see its log"))
    }
}

/// Who asks: root as a rule, and for whom.
fn person() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("SUDO_USER") {
        Ok(name) if !name.is_empty() => format!("uid {uid} ({name})"),
        _ => format!("uid {uid}"),
    }
}
