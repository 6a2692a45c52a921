//! The start of the program. `run` stays for years beside other people's jobs: what the other commands take of memory, on
//! the stack and of the program itself, it never touches.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{Arguments, Failure, dispatch, examples, output, run};

/// The command line of `run` alone.
#[derive(Debug, Parser)]
#[command(name = "virtengine-node-agent", version)]
struct OneCommand {
    #[command(subcommand)]
    command: One,
}

#[derive(Debug, Subcommand)]
enum One {
    /// Measure and report until told to stop (SIGTERM); SIGHUP reads the configuration again
    #[command(after_help = examples::RUN)]
    Run(run::Run),
}

/// Runs what the command line asks for.
#[must_use]
pub fn main() -> ExitCode {
    let result = if std::env::args_os().nth(1).is_some_and(|word| word == "run") {
        stay()
    } else {
        others()
    };
    match result.and_then(output::ended) {
        Ok(code) => code,
        Err(Failure { code, message }) => {
            eprintln!("error: {message}");
            ExitCode::from(code)
        }
    }
}

#[inline(never)]
fn stay() -> Result<ExitCode, Failure> {
    let One::Run(run) = read();
    run.run()
}

/// Its stack is free again before the work begins.
#[inline(never)]
fn read() -> One {
    OneCommand::parse().command
}

#[inline(never)]
fn others() -> Result<ExitCode, Failure> {
    dispatch(Arguments::parse())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn run_alone_is_told_as_among_all_commands() {
        let help = |mut all: clap::Command| {
            all.build();
            let run = all.find_subcommand_mut("run").unwrap();
            (run.render_help().to_string(), run.render_long_help().to_string())
        };
        assert_eq!(help(OneCommand::command()), help(Arguments::command()));
        for words in [&["run"][..], &["run", "-c", "/x", "--hostname", "h"]] {
            let line = || std::iter::once("virtengine-node-agent").chain(words.iter().copied());
            let (one, all) = (
                OneCommand::try_parse_from(line()),
                Arguments::try_parse_from(line()),
            );
            assert_eq!(
                format!("{:?}", one.unwrap().command),
                format!("{:?}", all.unwrap().command)
            );
        }
        let line = ["virtengine-node-agent", "run", "--confg", "x"];
        let (one, all) = (OneCommand::try_parse_from(line), Arguments::try_parse_from(line));
        assert_eq!(one.unwrap_err().to_string(), all.unwrap_err().to_string());
    }
}
