mod safety;
mod start;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hpc_schema::task::CheckStatus;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{print, say};
use super::{ConfigArguments, Failure, Format, examples, runtime};
use crate::clock::Clock;
use crate::config::Config;
use crate::log;
use crate::state::{Registration, StateDir};
use crate::task::guard::Guard;
use crate::task::jail::Jail;
use crate::task::journal::load_all;
use crate::task::process::{LINK_COMMAND, LinkStart, TaskProcess};
use crate::task::{Authority, Policy, TaskDir, link, user};

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

/// The process that speaks with the gateway.
#[derive(Debug, Args)]
pub(super) struct TaskLink {
    #[command(flatten)]
    config: ConfigArguments,
}

impl Tasks {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            None => serve(&self.config),
            Some(TasksCommand::List { config, output }) => list(&config, output),
            Some(TasksCommand::Safety {
                config,
                apply,
                output,
            }) => safety::run(&config, apply, output),
            Some(TasksCommand::Probe { config, output }) => probe(&config, output),
            Some(TasksCommand::Trust { config }) => trust(&config),
        }
    }
}

fn serve(arguments: &ConfigArguments) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    log::start(&config.logging).map_err(|e| Failure::new(2, format_args!("logging.file: {e}")))?;
    judge(&config)?;
    let start = LinkStart {
        program: std::env::current_exe().map_err(|e| Failure::new(1, e))?,
        arguments: link_arguments(arguments),
        user: link_user(&config)?,
    };
    crate::task::start::served();
    // Before there are other threads: they are in it too.
    jailed(&Jail::Acting)?;
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let stop = stopped().map_err(|e| Failure::new(1, format_args!("cannot listen for signals: {e}")))?;
        let process = TaskProcess::start(&config, start).map_err(|e| Failure::new(1, e.detail))?;
        // Without a service manager there is nobody to tell.
        sd_notify::notify(&[sd_notify::NotifyState::Ready]).ok();
        process.serve(stop).await.map_err(|e| Failure::new(1, e.detail))
    });
    runtime.shutdown_background();
    if let Err(Failure { message, .. }) = &result {
        tracing::error!("{message}");
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// What a service manager must not try again (2: a person has to write something), and what it may: 3 before the
/// registration, 1 for all else that passes.
fn judge(config: &Config) -> Result<(), Failure> {
    let tasks = config.tasks.as_ref().ok_or_else(not_configured)?;
    if let Some(path) = &tasks.policy {
        Policy::load(path).map_err(|e| Failure::new(2, e))?;
    }
    match Registration::load(&StateDir::new(&config.state_dir)) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(not_registered()),
        Err(e) => Err(Failure::new(1, e)),
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

/// Ends with SIGTERM or SIGINT.
fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// What was given to us by flags or environment, as flags: the link's environment is empty.
fn link_arguments(given: &ConfigArguments) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![
        LINK_COMMAND.into(),
        "--config".into(),
        given.config.clone().into(),
    ];
    let texts = [
        ("--endpoint", given.endpoint.clone()),
        ("--log-level", given.log_level.clone()),
    ];
    for (flag, text) in texts {
        if let Some(text) = text {
            arguments.extend([flag.into(), text.into()]);
        }
    }
    arguments
}

/// The link runs as this user; only root can change to another.
fn link_user(config: &Config) -> Result<Option<(u32, u32)>, Failure> {
    let Some(tasks) = &config.tasks else {
        return Ok(None);
    };
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let Some(name) = &tasks.user else {
        tracing::warn!(
            "tasks.user is not set: the process that speaks with the gateway runs as root; name a user without rights"
        );
        return Ok(None);
    };
    let found = user::find(&config.roots.etc, name).map_err(|e| Failure::new(2, e))?;
    match found {
        Some(ids) => Ok(Some(ids)),
        None => Err(Failure::new(
            2,
            format_args!("tasks.user: there is no user {name}; make it, or name another"),
        )),
    }
}

impl TaskLink {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.config.load()?;
        jailed(&link_jail(&config))?;
        log::start(&config.logging).map_err(|e| Failure::new(2, format_args!("logging.file: {e}")))?;
        let runtime = runtime()?;
        let result = runtime.block_on(Box::pin(link::serve_pipes(config)));
        runtime.shutdown_background();
        result.map_err(|e| Failure::new(1, e))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Enters a jail for good.
fn jailed(jail: &Jail) -> Result<(), Failure> {
    let refused = |e| {
        Failure::new(
            1,
            format_args!("the kernel refuses the jail of this process: {e}"),
        )
    };
    jail.enter().map(drop).map_err(refused)
}

/// What the link reads, by folder: certificates are replaced by new files.
fn link_jail(config: &Config) -> Jail {
    let folder = |file: &Path| crate::files::directory_of(file).to_owned();
    let tls = &config.tls;
    let certificates = [&tls.ca_cert, &tls.client_cert, &tls.client_key];
    let mut ports: Vec<u16> = config.endpoints.iter().map(|e| e.port).collect();
    // Names, where an answer does not fit into a datagram.
    ports.push(53);
    Jail::Link {
        reads: certificates
            .map(|f| folder(f))
            .into_iter()
            .chain([config.state_dir.clone()])
            .collect(),
        writes: config.logging.file.iter().map(|f| folder(f)).collect(),
        ports,
    }
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

fn list(arguments: &ConfigArguments, output: Format) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    let journals = load_all(&dir(&config)?.journal(), false).map_err(|e| Failure::new(1, e))?;
    let rows: Vec<serde_json::Value> = journals
        .iter()
        .map(|journal| match journal {
            Ok(journal) => {
                let story = journal.story();
                serde_json::json!({
                    "task_id": story.task.task_id, "type": story.task.task_type, "taken_at": story.taken_at,
                    "state": story.ended.as_ref().map_or("running", |e| e.outcome.as_str()),
                    "code": story.ended.as_ref().and_then(|e| e.code.clone()),
                    "holds": story.holds().map(ToString::to_string),
                    "left": if story.is_residue() { story.findings() } else { Vec::new() },
                    "effects_left": story.steps.iter().filter(|s| s.remains()).count(),
                    "heard": story.heard,
                })
            }
            Err(e) => serde_json::json!({"damaged": e.to_string()}),
        })
        .collect();
    if output != Format::Text {
        return print(&serde_json::Value::Array(rows), output);
    }
    for row in rows {
        let text = |name: &str| row.get(name).and_then(|v| v.as_str()).unwrap_or("-").to_owned();
        match row.get("damaged") {
            Some(_) => say!("damaged: {}", text("damaged")),
            None => say!(
                "{}  {}  {}  {}  {}",
                text("task_id"),
                text("type"),
                text("state"),
                text("code"),
                text("holds")
            ),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn probe(arguments: &ConfigArguments, output: Format) -> Result<ExitCode, Failure> {
    let config = arguments.load()?;
    let probed = crate::task::handlers::probe(&config.roots, None);
    let shown = serde_json::to_value(&probed).map_err(|e| Failure::new(1, e))?;
    if output == Format::Text {
        for check in shown
            .get("checks")
            .and_then(|c| c.as_array())
            .into_iter()
            .flatten()
        {
            let word = |name: &str| check.get(name).and_then(|v| v.as_str()).unwrap_or_default();
            say!("{:<7} {:<7} {}", word("status"), word("check"), word("detail"));
        }
    } else {
        print(&shown, output)?;
    }
    Ok(if probed.status == CheckStatus::Fail {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
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
