//! From arguments to an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use serde::Serialize;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::error::{Exit, Failure};
use crate::output::{Format, Text, note};
use crate::{deploy, keys, profile, proof, query, tx};

/// The whole program.
pub(crate) fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(e) => return usage(&e, &arguments),
    };
    let format = cli.global.output;
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure, format);
            ExitCode::from(failure.exit.number())
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let context = Context::new(&cli.global)?;
    match &cli.command {
        Command::Query(args) => block_on(query::run(&context, args)),
        Command::Tx(args) => block_on(tx::run(&context, args)),
        Command::Deploy(args) => block_on(deploy::run(&context, args)),
        Command::Keys(args) => keys::run(&context, args),
        Command::Proof(command) => proof::run(&context, command),
        Command::Profile(command) => profile::run(&context, command),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "virtengine", &mut script);
            context.printer.raw(&String::from_utf8_lossy(&script))
        }
        Command::Version => context.printer.print(&Version {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            target: std::env::consts::ARCH,
        }),
    }
}

#[derive(Debug, Serialize)]
struct Version {
    name: &'static str,
    version: &'static str,
    target: &'static str,
}

impl Text for Version {
    fn text(&self) -> String {
        format!("{} {}\n", self.name, self.version)
    }
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Failed, "runtime", e.to_string()))?;
    // Boxed: the futures of all commands together are large.
    runtime.block_on(Box::pin(command))
}

/// Help and version are no errors; everything else is a wrong usage.
fn usage(e: &clap::Error, arguments: &[OsString]) -> ExitCode {
    if !e.use_stderr() {
        // A reader that has gone away is no failure.
        e.print().ok();
        return ExitCode::SUCCESS;
    }
    if wants_json(arguments) {
        let text = e.to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        let message = first
            .trim_start_matches("error: ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        report(
            &Failure::usage("usage", message).remedy("see --help of the command"),
            Format::Json,
        );
    } else {
        e.print().ok();
    }
    ExitCode::from(Exit::Usage.number())
}

/// Whether errors are to be JSON, where the arguments could not be parsed.
fn wants_json(arguments: &[OsString]) -> bool {
    let words: Vec<_> = arguments.iter().map(|a| a.to_string_lossy()).collect();
    let flag = words
        .windows(2)
        .any(|w| matches!(w, [f, v] if matches!(f.as_ref(), "-o" | "--output") && v == "json"));
    let joined = words
        .iter()
        .any(|w| matches!(w.as_ref(), "-ojson" | "-o=json" | "--output=json"));
    let named = words
        .iter()
        .any(|w| w.starts_with("-o") || w.starts_with("--output"));
    flag || joined || (!named && std::env::var_os("VIRTENGINE_OUTPUT").is_some_and(|v| v == "json"))
}

fn report(failure: &Failure, format: Format) {
    match format {
        Format::Json => note(&failure.to_json()),
        Format::Text | Format::Yaml => note(&failure.to_string()),
    }
}
