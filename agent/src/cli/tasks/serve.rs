//! The task agent itself.

use std::ffi::OsString;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::super::{ConfigArguments, Failure, runtime};
use super::link::jailed;
use super::{not_configured, not_registered};
use crate::config::Config;
use crate::log;
use crate::state::{Registration, StateDir};
use crate::task::jail::Jail;
use crate::task::process::{LINK_COMMAND, LinkStart, TaskProcess};
use crate::task::{Policy, user};

pub(super) fn run(arguments: &ConfigArguments) -> Result<ExitCode, Failure> {
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
