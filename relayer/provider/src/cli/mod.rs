//! The command line: `init`, `run`, and every operation of [`crate::admin`].

mod admin;
mod alert;
mod args;
mod audit;
mod backup;
mod certificate;
mod command;
mod config;
mod heartbeat;
mod init;
mod keys;
mod log;
mod node;
mod output;
mod run;
mod slot;
mod status;
mod task;
mod token;
mod watch;

use clap::{CommandFactory as _, Parser as _};
use serde_json::json;

use crate::admin::{Admin, AdminError};
use crate::audit::Actor;
use crate::config::{Config, ConfigError};
use crate::daemon::StartError;
use crate::home::Home;
use crate::store::{Store, StoreError};
use args::{Args, Command, TaskCommand};
use output::Output;

/// Runs the program; gives its exit code.
#[must_use]
pub fn main() -> u8 {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&e, 71),
    };
    match runtime.block_on(dispatch(args)) {
        Ok(()) => 0,
        Err(e) => fail(&format!("{e:#}"), exit_code(&e)),
    }
}

/// After sysexits.h: 78 configuration and keys, 74 disk, 69 a service; 1 for what is refused.
fn exit_code(e: &anyhow::Error) -> u8 {
    if let Some(e) = e.downcast_ref::<StartError>() {
        return e.exit_code();
    }
    match e.downcast_ref::<AdminError>() {
        Some(AdminError::Chain(_)) => return 69,
        Some(AdminError::Home(_)) => return 78,
        Some(AdminError::Store(_) | AdminError::Random(_)) => return 74,
        _ => {}
    }
    if e.is::<StoreError>() {
        return 74;
    }
    if e.is::<ConfigError>() {
        return 78;
    }
    1
}

fn fail(e: &dyn std::fmt::Display, code: u8) -> u8 {
    // The last word of a program goes to its standard error, whatever its log does.
    drop(std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("virtengine-provider: {e}\n").as_bytes(),
    ));
    code
}

async fn dispatch(args: Args) -> anyhow::Result<()> {
    let home = Home::new(args.home);
    let out = Output(args.output);
    match args.command {
        Command::Init(init) => init::run(&home, &init, out).await,
        Command::Run => Box::pin(run::run(home)).await,
        Command::Config(command) => config::run(&home, &command, out),
        Command::NodeToken(command) => Box::pin(token::run(&desk(home).await?, command, out)).await,
        Command::Node(command) => Box::pin(node::run(&desk(home).await?, command, out)).await,
        Command::Order(command) => Box::pin(command::run(&desk(home).await?, command, out)).await,
        Command::Task(TaskCommand::Catalog) => task::catalog(out),
        Command::Task(command) => Box::pin(task::run(&desk(home).await?, command, out)).await,
        Command::Slot(command) => Box::pin(slot::run(&desk(home).await?, command, out)).await,
        Command::Heartbeat(command) => Box::pin(heartbeat::run(&desk(home).await?, command, out)).await,
        Command::Alert(command) => alert::run(&desk(home).await?, command, out).await,
        Command::Certificate(command) => Box::pin(certificate::run(&desk(home).await?, command, out)).await,
        Command::Keys(command) => Box::pin(keys::run(&desk(home).await?, command, out)).await,
        Command::AdminToken(command) => Box::pin(admin::run(&desk(home).await?, command, out)).await,
        Command::Audit(command) => Box::pin(audit::run(&desk(home).await?, command, out)).await,
        Command::Backup(command) => Box::pin(backup::run(home, command, out)).await,
        Command::Reload => {
            desk(home).await?.reload(&who()).await?;
            let text = "the daemon reads certificates and configuration anew; status says if something cannot be used";
            out.done(text, &json!({ "reload": "asked for" }))
        }
        Command::Status => status::run(&desk(home).await?, out).await,
        Command::Openapi => output::line(&serde_json::to_string_pretty(&crate::openapi::document())?),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Args::command(),
                "virtengine-provider",
                &mut std::io::stdout(),
            );
            Ok(())
        }
    }
}

/// The desk of this directory.
async fn desk(home: Home) -> Result<Admin, StartError> {
    let config = load(&home)?;
    let store = Store::of(&home, &config.store).await?;
    Ok(Admin { home, config, store })
}

/// Who uses the command line, for the record.
fn who() -> Actor {
    let name = std::env::var("SUDO_USER")
        .or_else(|_| std::env::var("USER"))
        .unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    // The log has one line of a bounded length for each.
    Actor::command_line(
        name.chars()
            .filter(|c| !c.is_control())
            .take(64)
            .collect::<String>(),
    )
}

fn load(home: &Home) -> Result<Config, StartError> {
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Ok(Config::load(&home.config(), env)?)
}
