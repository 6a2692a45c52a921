use std::process::ExitCode;

use clap::Parser;
use virtengine_node_agent::cli::{Arguments, dispatch};

fn main() -> ExitCode {
    dispatch(Arguments::parse())
}
