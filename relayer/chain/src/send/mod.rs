//! One transaction from a person's hands to its end: the settlement machine without a durable store.

mod error;
mod sender;

use std::num::NonZeroU64;
use std::time::Duration;

use cosmrs::Any;

use crate::gas::{Adjustment, Coin, GasPrice, MoneyError};
use crate::keys::Signer;
use crate::query::Chain;
use crate::rpc::TxAnswer;
use crate::tx::{self, Fee, Unsigned};

pub use error::SendError;
use sender::Sender;

/// The gas limit of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gas {
    /// Simulate, then multiply.
    Auto(Adjustment),
    /// Exactly so much.
    Fixed(u64),
}

/// What is paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pay {
    /// ceil(gas × price).
    Price(GasPrice),
    /// These coins, whatever the gas.
    Coins(Vec<Coin>),
    /// ceil(gas × price), by a fee grant of another account.
    Granted {
        /// For a unit of gas.
        price: GasPrice,
        /// Whose grant pays.
        granter: String,
    },
}

impl Pay {
    /// The coins for so much gas.
    fn amount(&self, gas: u64) -> Result<Vec<Coin>, MoneyError> {
        match self {
            Self::Price(price) | Self::Granted { price, .. } => Ok(price.fee(gas)?.into_iter().collect()),
            Self::Coins(coins) => Ok(coins.clone()),
        }
    }

    fn granter(&self) -> Option<String> {
        match self {
            Self::Granted { granter, .. } => Some(granter.clone()),
            Self::Price(_) | Self::Coins(_) => None,
        }
    }
}

/// How to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendOptions {
    /// Chain id; every endpoint must name it.
    pub chain_id: String,
    /// Bech32 prefix of addresses.
    pub prefix: String,
    /// Gas limit.
    pub gas: Gas,
    /// Fee.
    pub pay: Pay,
    /// For people.
    pub memo: String,
    /// Longest wait for the end; afterwards the outcome is unknown and the hash is told.
    pub deadline: Duration,
}

/// A transaction that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// With its events and data.
    pub tx: TxAnswer,
    /// What was paid.
    pub fee: Fee,
}

/// Signs `messages` with `key`, sends them and waits for the end.
///
/// # Errors
/// Every way in which it did not take effect; [`SendError::Unknown`] and [`SendError::Untold`] where that is not known.
pub async fn send_and_wait(
    chain: &Chain,
    key: &dyn Signer,
    options: &SendOptions,
    messages: Vec<Any>,
) -> Result<Sent, SendError> {
    let found = chain.chain_id().await?;
    if found != options.chain_id {
        return Err(SendError::WrongChain {
            wanted: options.chain_id.clone(),
            found,
        });
    }
    let address = key.address(&options.prefix)?;
    let Some(account) = chain.account(&address).await?.value else {
        return Err(SendError::AccountUnknown { address });
    };
    let mut draft = Unsigned {
        messages,
        memo: options.memo.clone(),
        timeout_height: NonZeroU64::MAX,
        fee: Fee::default(),
    };
    draft.fee = fee(chain, key, account.sequence, options, &draft).await?;
    let mut sender = Sender::new(chain, key, options, address, draft);
    let deadline = tokio::time::Instant::now() + options.deadline;
    match tokio::time::timeout_at(deadline, sender.run()).await {
        Ok(ended) => ended,
        Err(_) => Err(sender.out_of_time()),
    }
}

/// The gas limit and what it costs.
///
/// # Errors
/// What the simulation shows: [`crate::query::QueryError::Contract`] and the like.
pub async fn fee(
    chain: &Chain,
    key: &dyn Signer,
    sequence: u64,
    options: &SendOptions,
    draft: &Unsigned,
) -> Result<Fee, SendError> {
    let gas_limit = match options.gas {
        Gas::Fixed(gas) => gas,
        Gas::Auto(adjustment) => {
            // Paying a fee costs gas itself (some 18,000), so a simulation without one would fall short; the amount does
            // not matter. The same holds for the bytes of the timeout height.
            let simulated = Unsigned {
                fee: Fee {
                    amount: options.pay.amount(1)?,
                    gas_limit: 0,
                    granter: options.pay.granter(),
                },
                ..draft.clone()
            };
            let used = chain
                .simulate(tx::simulation_bytes(key, sequence, &simulated))
                .await?;
            adjustment.apply(used)
        }
    };
    Ok(Fee {
        amount: options.pay.amount(gas_limit)?,
        gas_limit,
        granter: options.pay.granter(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_grant_pays_is_priced_as_what_the_key_pays_and_names_the_granter() {
        let price: GasPrice = "0.025stake".parse().unwrap();
        let own = Pay::Price(price.clone());
        let granted = Pay::Granted {
            price,
            granter: "wasm1granter".to_owned(),
        };
        assert_eq!(granted.amount(100_001), own.amount(100_001));
        assert_eq!(granted.granter().as_deref(), Some("wasm1granter"));
        assert_eq!(own.granter(), None);
    }
}
