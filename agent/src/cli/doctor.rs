use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::output::{print, say};
use super::{ConfigArguments, Failure, Format, runtime};
use crate::clock::unix_seconds;
use crate::doctor::{self, Check, Grade};

/// `doctor`.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    config: ConfigArguments,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Doctor {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let mut checks = Vec::new();
        match self.config.load() {
            Err(e) => checks.push(Check::wrong(
                "config",
                e,
                "virtengine-node-agent config check, once it is mended; docs/agent.md shows a file",
            )),
            Ok(config) => {
                checks.extend(runtime()?.block_on(doctor::all(&config, unix_seconds())));
            }
        }
        let wrong = checks.iter().any(|c| c.grade == Grade::Wrong);
        match self.output {
            Format::Text => text(&checks),
            format => {
                print(&json!({"healthy": !wrong, "checks": checks}), format)?;
            }
        }
        Ok(if wrong {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn text(checks: &[Check]) {
    for c in checks {
        let grade = match c.grade {
            Grade::Good => "good ",
            Grade::Skipped => "  -  ",
            Grade::Note => "note ",
            Grade::Wrong => "WRONG",
        };
        say!("{grade}  {:<20} {}", c.code, c.message);
        if let Some(remedy) = &c.remedy {
            say!("       {:<20} remedy: {remedy}", "");
        }
    }
    let wrong = checks.iter().filter(|c| c.grade == Grade::Wrong).count();
    match wrong {
        0 => say!("\nnothing is wrong"),
        1 => say!("\none thing is wrong"),
        n => say!("\n{n} things are wrong"),
    }
}
