//! Events as the chain's modules write them.

use crate::address;
use crate::coin::Coins;

/// A typed event with attributes in order. Every attribute is indexed.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) attributes: Vec<Attribute>,
}

/// One attribute of an event.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

impl Event {
    pub(crate) fn new(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            attributes: Vec::new(),
        }
    }

    /// Appends an attribute.
    pub(crate) fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push(Attribute {
            key: key.into(),
            value: value.into(),
        });
        self
    }
}

/// The events of coins moving from one account to another, in the bank module's order. `sender` adds the
/// `message` event that a transfer on behalf of a contract lacks.
pub(crate) fn transfer(from: &[u8], to: &[u8], coins: &Coins, sender: bool) -> Vec<Event> {
    let (from, to, amount) = (address::text(from), address::text(to), coins.to_string());
    let mut events = vec![
        Event::new("coin_spent")
            .with("spender", &from)
            .with("amount", &amount),
        Event::new("coin_received")
            .with("receiver", &to)
            .with("amount", &amount),
        Event::new("transfer")
            .with("recipient", &to)
            .with("sender", &from)
            .with("amount", &amount),
    ];
    if sender {
        events.push(Event::new("message").with("sender", &from));
    }
    events
}
