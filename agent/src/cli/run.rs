use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::refused::{pin_refused, refusal, until_stopped};
use super::register::exit_code;
use super::start::{Alive, look_at_files, with_key};
use super::{ConfigArguments, Failure, runtime};
use crate::api::{self, Board};
use crate::clock::{instant, unix_seconds};
use crate::config::Config;
use crate::fault;
use crate::log::{self, LogHandle};
use crate::register::{Outcome, RegisterError, can_register, register};
use crate::run::{Agent, Ended, Reread, Rereading, RunError, Signal, Timing, World};
use crate::state::{Lock, Registration, StateDir, Status, StatusFile};
use crate::update::{Running, launch};

/// Exit code after the provider's order to stop: the unit does not start it again then.
const ORDERED: u8 = 10;

/// Bytes; a handshake and an answer fit several times.
const INTERFACE_STACK: usize = 512 << 10;
/// How long its address is waited for where it is taken, or the host does not have it yet.
const BIND_AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

/// `run`.
#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    config: ConfigArguments,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.config.load()?;
        look_at_files(&config)?;
        let log =
            log::start(&config.logging).map_err(|e| Failure::new(2, format_args!("logging.file: {e}")))?;
        let state = StateDir::new(&config.state_dir);
        let key = config.update.release_key.clone();
        let running = Running::here();
        if running.fetched {
            fault::point("update.started");
        } else {
            launch(&state, key.as_ref(), &running);
        }
        let runtime = runtime()?;
        log.aside();
        let result = runtime.block_on(serve(self.config, config, log.clone()));
        // A name server that does not answer must not hold up the end.
        runtime.shutdown_background();
        if let Err(Failure { message, .. }) = &result {
            tracing::error!("{message}");
        }
        log.settle();
        match result? {
            Ended::Told => Ok(ExitCode::SUCCESS),
            Ended::Ordered => Ok(ExitCode::from(ORDERED)),
            Ended::Relaunch => {
                launch(&state, key.as_ref(), &running);
                Ok(ExitCode::FAILURE)
            }
            Ended::Unproven => Ok(ExitCode::FAILURE),
        }
    }
}

/// The local interface, from the start on. Without it the agent works as well: monitoring is not worth a node.
/// A thread of its own: it reads files, and no file may keep a heartbeat waiting.
fn show(config: &Config) -> Arc<Board> {
    let board = Arc::<Board>::default();
    let (config, shown) = (config.clone(), Arc::clone(&board));
    let serve = move || {
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(Failure { message, .. }) => return tracing::warn!("no local interface: {message}"),
        };
        runtime.block_on(async {
            let mut said = false;
            loop {
                match api::bind(&config, Arc::clone(&shown)).await {
                    Ok(Some(interface)) => return interface.serve().await,
                    Ok(None) => return,
                    Err(e) if !said => tracing::warn!("no local interface until this is over: {e}"),
                    Err(_) => {}
                }
                said = true;
                tokio::time::sleep(BIND_AGAIN).await;
            }
        });
    };
    let thread = std::thread::Builder::new().name("interface".to_owned());
    if let Err(e) = thread.stack_size(INTERFACE_STACK).spawn(serve) {
        tracing::warn!("no local interface: {e}");
    }
    board
}

async fn serve(arguments: ConfigArguments, config: Config, log: LogHandle) -> Result<Ended, Failure> {
    let mut signals =
        listen().map_err(|e| Failure::new(1, format_args!("cannot listen for signals: {e}")))?;
    let alive = Alive::start();
    let board = show(&config);
    let reread: Reread = Arc::new(move || arguments.load());
    let mut rereading = Rereading::default();
    let Some(config) = register_first(config, &reread, &mut rereading, &log, &mut signals).await? else {
        return Ok(Ended::Told);
    };
    let key_path = config.key_path.clone();
    let made = move || Agent::new(config, World::real(fault::hurried(Timing::default())));
    let Some(agent) = with_key(&key_path, &mut signals, made).await? else {
        return Ok(Ended::Told);
    };
    let mut agent = agent.map_err(|e| match e {
        RunError::NotRegistered => Failure::new(3, e),
        e => Failure::new(2, e),
    })?;
    // From here on it is the loop that shows whether the agent lives.
    drop(alive);
    agent.show_on(board);
    agent.on_reload(reread, Some(log));
    if rereading.again_at().is_some() {
        // Asked for while it registered, and not read yet.
        agent.reload();
    }
    // Large: kept off the stack of the runtime.
    Ok(Box::pin(agent.run(signals)).await)
}

/// A node with a token that is not registered yet registers itself, however long the gateway takes; the configuration
/// in force then. None if told to stop meanwhile.
async fn register_first(
    mut config: Config,
    reread: &Reread,
    rereading: &mut Rereading,
    log: &LogHandle,
    signals: &mut mpsc::Receiver<Signal>,
) -> Result<Option<Config>, Failure> {
    let state = StateDir::new(&config.state_dir);
    let registered = Registration::load(&state)
        .map_err(|e| Failure::new(1, e))?
        .is_some();
    if registered {
        return Ok(Some(config));
    }
    if let Err(e) = can_register(&config) {
        return match e {
            // The agent says it, as it does wherever it finds no registration.
            RegisterError::NoToken => Ok(Some(config)),
            e => Err(Failure::new(exit_code(&e), e)),
        };
    }
    let path = config.key_path.clone();
    let Some(key) = with_key(&config.key_path, signals, move || crate::key::load(&path)).await? else {
        return Ok(None);
    };
    let key = key.map_err(|e| Failure::new(2, e))?;
    state.create().map_err(|e| Failure::new(1, e))?;
    let running = || RunError::Running {
        path: config.state_dir.display().to_string(),
    };
    let lock = Lock::take(&state)
        .map_err(|e| Failure::new(1, e))?
        .ok_or_else(|| Failure::new(2, running()))?;
    let mut status = Status {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: unix_seconds(),
        ..Status::default()
    };
    let mut file = StatusFile::new(&state);
    let result = 'registered: loop {
        let new = {
            let mut work = pin!(register(&config, &key, None, |reason| {
                tracing::info!("registering: {reason}");
                status.registering = Some(reason.to_owned());
                save(&mut file, &status);
            }));
            // It goes on until there is another configuration.
            loop {
                let look = rereading.again_at();
                tokio::select! {
                    biased;
                    signal = signals.recv() => match signal {
                        Some(Signal::Reload) => rereading.ask(),
                        Some(Signal::Stop) | None => return Ok(None),
                    },
                    result = &mut work => break 'registered result,
                    () = tokio::time::sleep_until(look.unwrap_or_else(instant).into()), if look.is_some() => {}
                }
                if let Some(new) = rereading.answer(reread, &config) {
                    break new;
                }
            }
        };
        log.apply(&new.logging);
        if (&new.state_dir, &new.key_path) == (&config.state_dir, &config.key_path) {
            tracing::info!("configuration reloaded; the registration begins anew");
            config = new;
        } else {
            tracing::error!(
                "configuration not reloaded: agent.state_dir or agent.key_path has changed; start the agent again"
            );
        }
    };
    if let Some(e) = result.as_ref().err().filter(|e| pin_refused(e)) {
        status.registering = Some("waiting for a restart with the right PIN".to_owned());
        status.last_refusal = Some(refusal(e));
        save(&mut file, &status);
        // Whoever starts it again tries the PIN again, and a few tries lock the token.
        until_stopped(e, signals).await;
        return Ok(None);
    }
    // The agent takes it for itself.
    drop(lock);
    match result {
        Ok(Outcome::Recovered(r)) => {
            tracing::info!(
                epoch = r.epoch,
                "the registration was lost here; the agent's key has brought it back"
            );
            Ok(Some(config))
        }
        Ok(_) => {
            tracing::info!("node registered successfully");
            Ok(Some(config))
        }
        Err(e) => {
            status.registering = Some("refused".to_owned());
            status.last_refusal = Some(refusal(&e));
            save(&mut file, &status);
            Err(Failure::new(exit_code(&e), e))
        }
    }
}

fn save(file: &mut StatusFile, status: &Status) {
    if let Err(e) = file.save(status) {
        tracing::warn!("status cannot be written: {e}");
    }
}

/// SIGTERM, SIGINT and SIGHUP as messages; the channel is as long as there are kinds to wait for.
fn listen() -> std::io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(4);
    for (kind, meaning) in [
        (SignalKind::terminate(), Signal::Stop),
        (SignalKind::interrupt(), Signal::Stop),
        (SignalKind::hangup(), Signal::Reload),
    ] {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // Full: the same message waits already.
                sender.try_send(meaning).ok();
            }
        });
    }
    Ok(receiver)
}
