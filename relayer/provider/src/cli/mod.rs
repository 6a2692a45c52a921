//! The command line: `init`, `run`, and every operation of [`crate::admin`].

mod admin;
mod alert;
mod args;
mod audit;
mod backup;
mod certificate;
mod command;
mod config;
mod desk;
mod exit;
mod heartbeat;
mod init;
mod keys;
mod log;
mod node;
mod nodes;
mod output;
mod owner;
mod run;
mod slot;
mod status;
mod task;
mod token;
mod watch;

use std::io::ErrorKind;
use std::sync::Weak;

use anyhow::bail;
use clap::{CommandFactory as _, Parser as _};
use hpc_chain::keys::hsm_helper;
use serde_json::json;

use crate::admin::{Admin, AdminError};
use crate::audit::Actor;
use crate::config::Config;
use crate::daemon::StartError;
use crate::home::Home;
use crate::store::Store;
use args::{Args, Command, ConfigCommand, TaskCommand};
use desk::Desk;
use exit::exit_code;
use output::Output;

/// Runs the program; gives its exit code.
#[must_use]
pub fn main() -> u8 {
    let args = Args::parse();
    if matches!(args.command, Command::SignPkcs11) {
        return sign_pkcs11();
    }
    let home = args.home.clone();
    let became = match works_on_home(&args).then(|| owner::become_owner(&home)) {
        None => None,
        Some(Ok(became)) => became,
        Some(Err(e)) => {
            let home = home.display();
            return fail(
                &format!("root cannot become the user to whom {home} belongs: {e}; run this as that user"),
                71,
            );
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&e, 71),
    };
    match runtime.block_on(dispatch(args)) {
        Ok(()) => 0,
        Err(e) => {
            let denied = |e: &(dyn std::error::Error + 'static)| {
                e.downcast_ref::<std::io::Error>()
                    .is_some_and(|e| e.kind() == ErrorKind::PermissionDenied && e.raw_os_error().is_some())
            };
            let remedy = became
                .filter(|_| e.chain().any(denied))
                .map(|became| format!("; {}", became.remedy(&home)))
                .unwrap_or_default();
            fail(&format!("{}{remedy}", output::words(&e)), exit_code(&e))
        }
    }
}

/// Whether the directory is read or written, and nobody else asked. The daemon stays who starts it, who may have given it
/// rights that the user has not: a port below 1024, credentials of the unit.
fn works_on_home(args: &Args) -> bool {
    args.elsewhere.admin.is_none()
        && !matches!(
            args.command,
            Command::Run
                | Command::Openapi
                | Command::Completions { .. }
                | Command::Config(ConfigCommand::Schema | ConfigCommand::Keys)
                | Command::Task(TaskCommand::Catalog)
        )
}

/// Without a runtime: the HSM's library has a process of its own, with one thread. What is wrong is told on the pipe.
fn sign_pkcs11() -> u8 {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    u8::from(hsm_helper(input, output).is_err())
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
    let (elsewhere, own) = (args.elsewhere, home.clone());
    // The store of this directory, or an admin listener.
    let desk = async || -> anyhow::Result<Desk> {
        match elsewhere.desk()? {
            Some(there) => Ok(there),
            None => Ok(Desk::here(admin_of(own.clone()).await?)),
        }
    };
    // What is the directory's alone is not done on another one by mistake.
    let here = || match &elsewhere.admin {
        Some(_) => bail!("this is for the command line on the gateway's own machine: leave out --admin"),
        None => Ok(()),
    };
    match args.command {
        Command::Init(init) => init::run(&home, &init, out).await,
        Command::Run => Box::pin(run::run(home)).await,
        Command::Config(command) => config::run(&home, &command, out),
        Command::NodeToken(command) => Box::pin(token::run(&desk().await?, command, out)).await,
        Command::Node(command) => Box::pin(node::run(&desk().await?, command, out)).await,
        Command::Order(command) => Box::pin(command::run(&desk().await?, command, out)).await,
        Command::Task(TaskCommand::Catalog) => task::catalog(out),
        Command::Task(TaskCommand::Prove { which, file }) => {
            here()?;
            Box::pin(task::prove(&admin_of(home).await?, &which, file.as_deref(), out)).await
        }
        Command::Task(command) => Box::pin(task::run(&desk().await?, command, out)).await,
        Command::Slot(command) => Box::pin(slot::run(&desk().await?, command, out)).await,
        Command::Heartbeat(command) => Box::pin(heartbeat::run(&desk().await?, command, out)).await,
        Command::Alert(command) => alert::run(&desk().await?, command, out).await,
        Command::Certificate(command) => Box::pin(certificate::run(&desk().await?, command, out)).await,
        Command::Keys(command) => {
            here()?;
            Box::pin(keys::run(&admin_of(home).await?, command, out)).await
        }
        Command::AdminToken(command) => Box::pin(admin::run(&desk().await?, command, out)).await,
        Command::Audit(command) => Box::pin(audit::run(&desk().await?, command, out)).await,
        Command::Backup(command) => {
            here()?;
            Box::pin(backup::run(home, command, out)).await
        }
        Command::Reload => {
            let desk = desk().await?;
            // One that starts later reads all anew by itself. Of a shared store other gateways hear as well.
            if let Desk::Here(admin, _) = &desk
                && !admin.store.is_shared()
                && !crate::daemon::runs(&admin.home)?
            {
                let what = format!(
                    "no daemon runs on {}; it reads all of it when it starts",
                    admin.home.dir().display()
                );
                return Err(AdminError::Unreachable(what).into());
            }
            desk.reload().await?;
            let text = "the daemon reads certificates and configuration anew; status says if something cannot be used";
            out.done(text, &json!({ "reload": "asked for" }))
        }
        // Done before there is a runtime.
        Command::SignPkcs11 => Ok(()),
        Command::Status => Box::pin(status::run(&desk().await?, out)).await,
        Command::Openapi => output::line(&serde_json::to_string_pretty(&crate::openapi::document())?),
        Command::Completions { shell } => {
            // The library panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "virtengine-provider", &mut script);
            output::line(String::from_utf8(script)?.trim_end())
        }
    }
}

/// What this directory's operators see and decide.
async fn admin_of(home: Home) -> Result<Admin, StartError> {
    let config = load(&home)?;
    let store = Store::of(&home, &config.store).await?;
    Ok(Admin {
        home,
        config,
        store,
        operator: None,
        gateway: Weak::new(),
    })
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
