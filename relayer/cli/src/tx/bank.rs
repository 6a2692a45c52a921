//! `tx bank`.

use hpc_chain::msg;

use super::Sending;
use crate::args::{BankTx, TxArgs};
use crate::context::{Context, Session, address};
use crate::error::Failure;

pub(super) async fn run(
    context: &Context,
    session: &Session,
    args: &TxArgs,
    command: &BankTx,
) -> Result<(), Failure> {
    let BankTx::Send { to, amount } = command;
    let prefix = session.prefix();
    let to = address(context, &args.keyring, prefix, to)?;
    let sending = Sending::new(
        context,
        &session.chain,
        session.profile.as_ref(),
        prefix,
        &args.sign,
        &args.keyring,
    )?;
    let message = msg::send(sending.sender(), &to, std::slice::from_ref(amount));
    match sending
        .send(context, &format!("send {amount} to {to}"), message)
        .await?
    {
        Some(tx) => context.printer.print(&tx),
        None => Ok(()),
    }
}
