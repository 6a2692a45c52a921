//! `slice.topology_discover`: what the host could offer as slices. Changes nothing, approves nothing.

use std::path::Path;

use hpc_schema::task::Params;
use serde_json::Value;

use crate::probe::tool::find;
use crate::task::context::Context;
use crate::task::exec::Program;
use crate::task::failure::Failure;
use crate::task::handler::{Handler, Recovery};
use crate::task::stop::Stop;
use crate::topology::{Tree, discover};

/// What is kept of a list of rules.
const RULES: usize = 4 << 20;

/// The handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Discover;

impl Handler for Discover {
    fn recovery(&self) -> Recovery {
        Recovery::Again
    }

    fn run(&self, context: &mut Context<'_>, _params: &Params) -> Result<Value, Failure> {
        context.phase("discover")?;
        let stop = context.stop().clone();
        let found = discover(&Tree {
            roots: &context.host().roots,
            run: Path::new("/run"),
            find: &|name| find(name, None),
            ask: &|name, arguments| ask(name, arguments, &stop),
        });
        context.check()?;
        serde_json::to_value(found).map_err(Failure::failed)
    }
}

fn ask(name: &str, arguments: &[&'static str], stop: &Stop) -> Option<String> {
    let program = Program::new(&find(name, None)?).keeping(RULES);
    let program = arguments.iter().fold(program, |p, a| p.flag(a));
    let said = program.run(stop).ok()?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}
