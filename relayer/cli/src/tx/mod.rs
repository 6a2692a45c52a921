//! `tx`: from the command line to a transaction's end.

mod bank;
mod hpc;
mod send;

pub(crate) use send::Sending;

use crate::args::{TxArgs, TxCommand};
use crate::context::{Context, Session};
use crate::error::Failure;

/// Runs the command.
pub(crate) async fn run(context: &Context, args: &TxArgs) -> Result<(), Failure> {
    let session = Session::new(context, &args.connect)?;
    match &args.command {
        TxCommand::Hpc(command) => hpc::run(context, &session, args, command).await,
        TxCommand::Bank(command) => bank::run(context, &session, args, command).await,
    }
}
