//! `query`.

mod hpc;
mod page;
mod proof;

use hpc_chain::query::QueryError;

use crate::args::{BankQuery, QueryArgs, QueryCommand};
use crate::context::{Context, Session, address};
use crate::error::{Exit, Failure};
use crate::output::{BalanceOut, CoinOut, TxOut};

/// Runs the command.
pub(crate) async fn run(context: &Context, args: &QueryArgs) -> Result<(), Failure> {
    let session = Session::new(context, &args.connect)?;
    match &args.command {
        QueryCommand::Hpc(query) => hpc::run(context, &session, query).await,
        QueryCommand::Bank(BankQuery::Balance {
            account,
            denom,
            keyring,
        }) => {
            let address = address(context, keyring, session.prefix(), account)?;
            let balances = session.chain.balances(&address).await?;
            let wanted = |d: &str| denom.as_deref().is_none_or(|wanted| wanted == d);
            let coins = balances
                .value
                .iter()
                .filter(|c| wanted(&c.denom))
                .map(CoinOut::from);
            context.printer.print(&BalanceOut {
                address,
                balances: coins.collect(),
                height: balances.height,
            })
        }
        QueryCommand::Tx { hash } => {
            let hash = *hash;
            let found = session.chain.endpoints().find_tx(hash).await;
            let tx = found.map_err(QueryError::from)?.ok_or_else(|| {
                Failure::new(
                    Exit::NotFound,
                    "tx_not_found",
                    "the node knows no transaction of this hash",
                )
                .remedy("it may not be in a block yet, or the node keeps no index that far back")
                .tx(hash)
            })?;
            context.printer.print(&TxOut::new(&tx))
        }
    }
}
