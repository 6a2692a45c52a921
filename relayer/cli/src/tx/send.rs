//! Cost first, then the question, then signing, sending and waiting.

use std::num::NonZeroU64;

use hpc_chain::gas::GasPrice;
use hpc_chain::keys::LocalKey;
use hpc_chain::msg::Any;
use hpc_chain::query::Chain;
use hpc_chain::send::{self, Gas as GasLimit, Pay, SendError, SendOptions};
use hpc_chain::tx::{Fee, Unsigned};

use crate::args::{Gas, KeyringArgs, SignArgs};
use crate::confirm::confirm;
use crate::context::{Context, missing};
use crate::error::Failure;
use crate::keys;
use crate::output::{CoinOut, CostOut, TxOut, coins, note};
use crate::profile::Profile;

/// A signer on one chain, with what it may pay.
pub(crate) struct Sending<'a> {
    chain: &'a Chain,
    key: LocalKey,
    sender: String,
    options: SendOptions,
    args: &'a SignArgs,
    confirmed: bool,
}

impl<'a> Sending<'a> {
    /// Opens the key and reads the settings; asks the node nothing yet.
    pub(crate) fn new(
        context: &Context,
        chain: &'a Chain,
        profile: Option<&Profile>,
        prefix: &str,
        args: &'a SignArgs,
        keyring: &KeyringArgs,
    ) -> Result<Self, Failure> {
        let chain_id = args
            .chain_id
            .clone()
            .or_else(|| profile.map(|p| p.chain_id.clone()));
        let chain_id = chain_id.ok_or_else(|| missing("chain id", "--chain-id ID", "VIRTENGINE_CHAIN_ID"))?;
        let from = args
            .from
            .as_deref()
            .ok_or_else(|| missing("signing key", "--from KEY", "VIRTENGINE_FROM"))?;
        let key = keys::open(&context.keyring(keyring)?, from)?;
        let sender = key.address(prefix)?;
        let gas = match args.gas {
            Gas::Auto => GasLimit::Auto(args.gas_adjustment),
            Gas::Limit(limit) => GasLimit::Fixed(limit),
        };
        let options = SendOptions {
            chain_id,
            prefix: prefix.to_owned(),
            gas,
            pay: pay(args, profile),
            memo: args.memo.clone(),
            deadline: args.timeout,
        };
        Ok(Self {
            chain,
            key,
            sender,
            options,
            args,
            confirmed: args.confirm.yes,
        })
    }

    /// Asks nothing.
    #[must_use]
    pub(crate) fn confirmed(mut self) -> Self {
        self.confirmed = true;
        self
    }

    /// The signer's address.
    pub(crate) fn sender(&self) -> &str {
        &self.sender
    }

    /// The chain.
    pub(crate) fn chain(&self) -> &Chain {
        self.chain
    }

    /// Chain id that is signed for.
    pub(crate) fn chain_id(&self) -> &str {
        &self.options.chain_id
    }

    /// What `messages` cost: gas limit and fee. The node's chain is checked first.
    pub(crate) async fn cost(&self, messages: &[Any]) -> Result<Fee, Failure> {
        let found = self.chain.chain_id().await?;
        if found != self.options.chain_id {
            return Err(SendError::WrongChain {
                wanted: self.options.chain_id.clone(),
                found,
            }
            .into());
        }
        let account = self.chain.account(&self.sender).await?.value;
        let account = account.ok_or_else(|| SendError::AccountUnknown {
            address: self.sender.clone(),
        })?;
        let draft = Unsigned {
            messages: messages.to_vec(),
            memo: self.options.memo.clone(),
            timeout_height: NonZeroU64::MAX,
            fee: Fee::default(),
        };
        Ok(send::fee(self.chain, &self.key, account.sequence, &self.options, &draft).await?)
    }

    /// Sends one message and waits for its end. `None` after a dry run, which has printed the cost.
    ///
    /// `what` says to the person who confirms what will happen.
    pub(crate) async fn send(
        &self,
        context: &Context,
        what: &str,
        message: Any,
    ) -> Result<Option<TxOut>, Failure> {
        let messages = vec![message];
        let fee = self.cost(&messages).await?;
        let paid: Vec<CoinOut> = fee.amount.iter().map(CoinOut::from).collect();
        if self.args.dry_run {
            let cost = CostOut {
                gas_wanted: fee.gas_limit,
                fee: paid,
                sender: self.sender.clone(),
            };
            context.printer.print(&cost)?;
            return Ok(None);
        }
        if !self.confirmed {
            let (sender, chain) = (&self.sender, &self.options.chain_id);
            note(&format!(
                "{what}\nas {sender} on {chain}; gas limit {}, fee {}",
                fee.gas_limit,
                coins(&paid)
            ));
        }
        confirm(self.confirmed, "sign and send?")?;
        // What was shown is what is paid.
        let options = SendOptions {
            gas: GasLimit::Fixed(fee.gas_limit),
            pay: Pay::Coins(fee.amount),
            ..self.options.clone()
        };
        let sent = send::send_and_wait(self.chain, &self.key, &options, messages).await?;
        let mut out = TxOut::new(&sent.tx);
        out.fee = Some(paid);
        Ok(Some(out))
    }
}

/// `--fees`, else `--gas-prices`, else the profile's price, else nothing: a node that wants a fee says so.
fn pay(args: &SignArgs, profile: Option<&Profile>) -> Pay {
    if let Some(fees) = &args.fees {
        return Pay::Coins(if fees.amount == 0 {
            Vec::new()
        } else {
            vec![fees.clone()]
        });
    }
    let of_profile = || profile.and_then(|p| p.gas_prices.clone());
    let price: Option<GasPrice> = args.gas_prices.clone().or_else(of_profile);
    price.map_or_else(|| Pay::Coins(Vec::new()), Pay::Price)
}
