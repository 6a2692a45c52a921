//! The command line: `init`, `run`, tokens, nodes, keys, status.

mod args;
mod backup;
mod certificate;
mod command;
mod csv;
mod init;
mod keys;
mod log;
mod node;
mod output;
mod run;
mod status;
mod token;

use std::path::Path;

use clap::Parser as _;

use crate::config::Config;
use crate::control;
use crate::daemon::{StartError, check_keys};
use crate::home::Home;
use crate::store::Store;
use args::{Args, Command, ConfigCommand};

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
        Err(e) => {
            let code = e.downcast_ref::<StartError>().map_or(1, StartError::exit_code);
            fail(&format!("{e:#}"), code)
        }
    }
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
    match args.command {
        Command::Init(init) => init::run(&home, &init),
        Command::Run => Box::pin(run::run(home)).await,
        Command::Config(ConfigCommand::Check) => {
            let config = load(&home)?;
            config.require_chain().map_err(StartError::from)?;
            check_keys(&home, &config)?;
            output::line(&format!("{} is in order", home.config().display()))
        }
        Command::Config(ConfigCommand::Show(out)) => output::value(&load(&home)?, out.output),
        Command::NodeToken(command) => token::run(&home, &load(&home)?, command).await,
        Command::Node(command) => Box::pin(node::run(&home, &load(&home)?, command)).await,
        Command::Order(command) => command::run(&home, command).await,
        Command::Certificate(command) => certificate::run(&home, command).await,
        Command::Keys(command) => keys::run(&home, &load(&home)?, command),
        Command::Backup(command) => backup::run(&home, command).await,
        Command::Reload => {
            let store = Store::open(&home.store()).await.map_err(StartError::from)?;
            let mut tx = store.begin().await?;
            control::touch_files(&mut tx).await?;
            tx.commit().await?;
            output::line("the daemon reads its certificates anew; status says if one cannot be used")
        }
        Command::Status(out) => status::run(&home, &load(&home)?, out.output).await,
    }
}

/// Who uses the command line, for the record.
fn who() -> String {
    std::env::var("SUDO_USER")
        .or_else(|_| std::env::var("USER"))
        .unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()))
}

fn load(home: &Home) -> Result<Config, StartError> {
    load_from(&home.config())
}

fn load_from(path: &Path) -> Result<Config, StartError> {
    let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Ok(Config::load(path, env)?)
}
