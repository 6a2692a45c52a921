//! Transactions and balances.

use hpc_chain::gas::Coin;
use hpc_chain::rpc::{Event, TxAnswer};
use serde::Serialize;
use serde_json::Value;

use super::{Align, Lines, Table, Text};

/// An event as Cosmos tools write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EventOut {
    #[serde(rename = "type")]
    ty: String,
    attributes: Vec<AttributeOut>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct AttributeOut {
    key: String,
    value: String,
}

impl From<&Event> for EventOut {
    fn from(event: &Event) -> Self {
        let attribute = |(key, value): (&str, &str)| AttributeOut {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        Self {
            ty: event.ty.clone(),
            attributes: event.pairs().map(attribute).collect(),
        }
    }
}

/// A transaction in a block. Numbers that may exceed 2^53 are strings, as everywhere in Cosmos.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TxOut {
    pub(crate) txhash: String,
    pub(crate) height: u64,
    /// 0: it took effect.
    pub(crate) code: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) codespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) log: String,
    pub(crate) gas_wanted: u64,
    pub(crate) gas_used: u64,
    /// Paid, where this program paid it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fee: Option<Vec<CoinOut>>,
    /// What the contract returned, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
    pub(crate) events: Vec<EventOut>,
}

impl TxOut {
    pub(crate) fn new(tx: &TxAnswer) -> Self {
        let result = &tx.result;
        let returned = hpc_chain::registry::response_data(result, 0).ok().flatten();
        Self {
            txhash: tx.hash.to_string(),
            height: tx.height,
            code: result.code,
            codespace: result.codespace.clone(),
            log: if result.code == 0 {
                String::new()
            } else {
                result.log.clone()
            },
            gas_wanted: result.gas_wanted,
            gas_used: result.gas_used,
            fee: None,
            data: returned.and_then(|bytes| serde_json::from_slice(&bytes).ok()),
            events: result.events.iter().map(EventOut::from).collect(),
        }
    }

    /// The first value of an attribute of the first event of a type.
    pub(crate) fn attribute(&self, event: &str, key: &str) -> Option<&str> {
        let mut attributes = self
            .events
            .iter()
            .filter(|e| e.ty == event)
            .flat_map(|e| &e.attributes);
        attributes.find(|a| a.key == key).map(|a| a.value.as_str())
    }
}

impl Text for TxOut {
    fn text(&self) -> String {
        let Self {
            txhash,
            height,
            code,
            codespace,
            log,
            gas_wanted,
            gas_used,
            fee,
            data,
            events,
        } = self;
        let mut lines = Lines::new();
        lines
            .line("txhash", txhash)
            .line("height", height)
            .line("code", code);
        if *code != 0 {
            lines.line("codespace", codespace).line("log", log);
        }
        lines.line("gas_wanted", gas_wanted).line("gas_used", gas_used);
        if let Some(fee) = fee {
            lines.line("fee", coins(fee));
        }
        match data {
            Some(Value::Object(members)) => {
                lines.block("data", |l| {
                    for (key, value) in members {
                        l.line(key, value);
                    }
                });
            }
            other => {
                lines.maybe("data", other.as_ref());
            }
        }
        // The chain's own bookkeeping is left to JSON; people want to know what the contract did.
        let ours = |e: &&EventOut| e.ty.starts_with("wasm") || e.ty == "transfer";
        for event in events.iter().filter(ours) {
            lines.block(&event.ty, |l| {
                for AttributeOut { key, value } in event.attributes.iter().filter(|a| a.key != "msg_index") {
                    l.line(key, value);
                }
            });
        }
        lines.finish()
    }
}

/// An amount in JSON, as everywhere in Cosmos: an integer in a string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CoinOut {
    pub(crate) denom: String,
    pub(crate) amount: String,
}

impl From<&Coin> for CoinOut {
    fn from(coin: &Coin) -> Self {
        Self {
            denom: coin.denom.clone(),
            amount: coin.amount.to_string(),
        }
    }
}

/// Coins on one line.
pub(crate) fn coins(coins: &[CoinOut]) -> String {
    if coins.is_empty() {
        return "none".into();
    }
    coins
        .iter()
        .map(|c| format!("{}{}", c.amount, c.denom))
        .collect::<Vec<_>>()
        .join(",")
}

/// What an account holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BalanceOut {
    pub(crate) address: String,
    pub(crate) balances: Vec<CoinOut>,
    pub(crate) height: u64,
}

impl Text for BalanceOut {
    fn text(&self) -> String {
        let mut table = Table::new([("AMOUNT", Align::Right), ("DENOMINATION", Align::Left)]);
        for CoinOut { denom, amount } in &self.balances {
            table.row([amount.clone(), denom.clone()]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        self.balances
            .is_empty()
            .then(|| format!("{} holds nothing", self.address))
    }
}

/// What a transaction would cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CostOut {
    pub(crate) gas_wanted: u64,
    pub(crate) fee: Vec<CoinOut>,
    pub(crate) sender: String,
}

impl Text for CostOut {
    fn text(&self) -> String {
        let mut lines = Lines::new();
        lines
            .line("sender", &self.sender)
            .line("gas_wanted", self.gas_wanted)
            .line("fee", coins(&self.fee));
        lines.finish()
    }
}
