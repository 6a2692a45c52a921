mod link;
mod safety;
mod serve;
mod show;
mod start;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::output::say;
use super::{ConfigArguments, Failure, Format, examples};
use crate::clock::Clock;
use crate::config::Config;
use crate::state::{Registration, StateDir};
use crate::task::guard::Guard;
use crate::task::{Authority, TaskDir};

pub(super) use link::TaskLink;
pub(super) use start::start;

/// `tasks`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Tasks {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(subcommand)]
    command: Option<TasksCommand>,
}

#[derive(Debug, Subcommand)]
enum TasksCommand {
    /// Every task on record here, and how it stands
    #[command(after_help = examples::TASKS_LIST)]
    List {
        #[command(flatten)]
        config: ConfigArguments,
        /// Form of the answer
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// What lies on the host against what the journals say should be; exit code 0 if all is as it should be
    #[command(after_help = examples::TASKS_SAFETY)]
    Safety {
        #[command(flatten)]
        config: ConfigArguments,
        /// Go as far as the policy does with what is in no journal; only while the task agent does not run
        #[arg(long)]
        apply: bool,
        /// Form of the answer
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Look at this host as diag.health_probe does; exit code 1 if a check fails: fit for Slurm's HealthCheckProgram
    #[command(after_help = examples::TASKS_PROBE)]
    Probe {
        #[command(flatten)]
        config: ConfigArguments,
        /// Form of the answer
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Take tasks of the present registration from now on, and of no other
    #[command(after_help = examples::TASKS_TRUST)]
    Trust {
        #[command(flatten)]
        config: ConfigArguments,
    },
}

impl Tasks {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            None => serve::run(&self.config),
            Some(TasksCommand::List { config, output }) => show::list(&config, output),
            Some(TasksCommand::Safety {
                config,
                apply,
                output,
            }) => safety::run(&config, apply, output),
            Some(TasksCommand::Probe { config, output }) => show::probe(&config, output),
            Some(TasksCommand::Trust { config }) => trust(&config),
        }
    }
}

fn not_configured() -> Failure {
    Failure::new(
        2,
        "this node takes no tasks: the configuration has no section tasks (docs/tasks.md)",
    )
}

fn not_registered() -> Failure {
    Failure::new(
        3,
        "this node is not registered; run virtengine-node-agent register",
    )
}

/// Until there is nothing to guard.
pub(super) fn guard(dir: &Path) -> Result<ExitCode, Failure> {
    let guard = Guard::new(TaskDir::new(dir), Path::new("/proc"));
    guard.serve().map_err(|e| Failure::new(1, e))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn dir(config: &Config) -> Result<TaskDir, Failure> {
    match &config.tasks {
        Some(tasks) => Ok(TaskDir::new(&tasks.dir)),
        None => Err(not_configured()),
    }
}

fn trust(arguments: &ConfigArguments) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    let dir = dir(&config)?;
    let registration = Registration::load(&StateDir::new(&config.state_dir))
        .map_err(|e| Failure::new(1, e))?
        .ok_or_else(not_registered)?;
    let authority =
        Authority::of(&registration, Clock::system().seconds()).map_err(|e| Failure::new(3, e.detail))?;
    dir.create().map_err(|e| Failure::new(1, e))?;
    authority.save(&dir).map_err(|e| Failure::new(1, e.detail))?;
    say!(
        "tasks of {}/{} count from now on, if the task key {} signed them; start the task agent anew",
        authority.cluster_id,
        authority.node_id,
        authority.task_key
    );
    Ok(ExitCode::SUCCESS)
}
