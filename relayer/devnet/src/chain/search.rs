//! The query language of `tx_search` and subscriptions, as far as it is supported: conditions joined by `AND`;
//! `=` on event attributes, `tx.hash`, `tm.event`; `=`, `<`, `<=`, `>`, `>=` on `tx.height`.

use std::collections::BTreeSet;

use super::snapshot::{IndexedTx, Snapshot};
use super::tables::tag;
use crate::error::Error;
use crate::tx::{self, Event};

/// The longest query that is parsed (CometBFT's limit).
const MAX_LENGTH: usize = 512;

/// At most so many transactions are gathered for one search.
const MAX_RESULTS: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    key: String,
    comparison: Comparison,
    value: String,
}

/// A parsed query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query(Vec<Condition>);

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("maximum query length exceeded")]
    TooLong,
    #[error("failed to parse query: {0}")]
    Syntax(String),
    #[error("the query matches more than {MAX_RESULTS} transactions; narrow it by tx.height")]
    TooMany,
    #[error("{0}")]
    Storage(String),
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        Self::Storage(error.to_string())
    }
}

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > MAX_LENGTH {
            return Err(QueryError::TooLong);
        }
        let mut conditions = Vec::new();
        let mut rest = text.trim();
        loop {
            let (condition, after) = condition(rest)?;
            conditions.push(condition);
            rest = after.trim_start();
            if rest.is_empty() {
                return Ok(Self(conditions));
            }
            rest = rest
                .strip_prefix("AND ")
                .ok_or_else(|| QueryError::Syntax(format!("expected AND before `{rest}`")))?
                .trim_start();
        }
    }

    /// Committed transactions that match, in block order.
    pub(crate) fn search(&self, snapshot: &Snapshot) -> Result<Vec<IndexedTx>, QueryError> {
        if let Some(by_hash) = self.0.iter().find(|c| c.key == "tx.hash") {
            let hash = hex::decode(&by_hash.value)
                .map_err(|error| QueryError::Syntax(format!("tx.hash: {error}")))?;
            let Ok(hash) = hash.try_into() else {
                return Ok(Vec::new());
            };
            let found = snapshot.tx(&hash)?;
            return Ok(found.into_iter().filter(|tx| self.matches(tx)).collect());
        }
        let mut tags = self
            .0
            .iter()
            .filter(|c| !matches!(c.key.as_str(), "tx.height" | "tm.event"));
        let positions: BTreeSet<(u64, u32)> = match tags.next() {
            Some(first) => snapshot.tagged(&tag(&first.key, &first.value), MAX_RESULTS + 1)?,
            None => {
                let (low, high) = self.heights(snapshot.tip.height);
                snapshot.transactions(low, high, MAX_RESULTS + 1)?
            }
        }
        .into_iter()
        .collect();
        if positions.len() > MAX_RESULTS {
            return Err(QueryError::TooMany);
        }
        let mut found = Vec::new();
        for (height, index) in positions {
            if self.height_matches(height) {
                let tx = snapshot.tx_at(height, index)?;
                if self.matches(&tx) {
                    found.push(tx);
                }
            }
        }
        Ok(found)
    }

    /// Whether a committed transaction matches every condition.
    pub(crate) fn matches(&self, tx: &IndexedTx) -> bool {
        self.matches_tx(tx.height, &tx.tx, &tx.result.events)
    }

    /// As [`Query::matches`], by parts.
    pub(crate) fn matches_tx(&self, height: u64, bytes: &[u8], events: &[Event]) -> bool {
        self.0.iter().all(|condition| match condition.key.as_str() {
            "tm.event" => condition.value == "Tx",
            "tx.hash" => condition
                .value
                .eq_ignore_ascii_case(&hex::encode(tx::hash(bytes))),
            "tx.height" => condition.height(height),
            key => events.iter().any(|event| {
                key.strip_prefix(event.kind.as_str())
                    .and_then(|rest| rest.strip_prefix('.'))
                    .is_some_and(|name| {
                        event
                            .attributes
                            .iter()
                            .any(|a| a.key == name && a.value == condition.value)
                    })
            }),
        })
    }

    /// The event type that a subscription asks for, if it names one.
    pub(crate) fn event_type(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|c| c.key == "tm.event")
            .map(|c| c.value.as_str())
    }

    /// Whether there are conditions besides the event type.
    pub(crate) fn only_event_type(&self) -> bool {
        self.0.iter().all(|c| c.key == "tm.event")
    }

    fn height_matches(&self, height: u64) -> bool {
        self.0
            .iter()
            .filter(|c| c.key == "tx.height")
            .all(|c| c.height(height))
    }

    /// The lowest and highest height that can match.
    fn heights(&self, tip: u64) -> (u64, u64) {
        let (mut low, mut high) = (1, tip);
        for condition in self.0.iter().filter(|c| c.key == "tx.height") {
            let Ok(value) = condition.value.parse::<u64>() else {
                continue;
            };
            match condition.comparison {
                Comparison::Equal => (low, high) = (low.max(value), high.min(value)),
                Comparison::Less | Comparison::LessOrEqual => high = high.min(value),
                Comparison::Greater | Comparison::GreaterOrEqual => low = low.max(value),
            }
        }
        (low, high)
    }
}

impl Condition {
    fn height(&self, height: u64) -> bool {
        let Ok(value) = self.value.parse::<u64>() else {
            return false;
        };
        match self.comparison {
            Comparison::Equal => height == value,
            Comparison::Less => height < value,
            Comparison::LessOrEqual => height <= value,
            Comparison::Greater => height > value,
            Comparison::GreaterOrEqual => height >= value,
        }
    }
}

/// Parses one condition and returns what follows it.
fn condition(text: &str) -> Result<(Condition, &str), QueryError> {
    let syntax = |why: &str| QueryError::Syntax(format!("{why} at `{text}`"));
    let end = text
        .find(|c: char| c.is_whitespace() || "=<>".contains(c))
        .ok_or_else(|| syntax("no operator"))?;
    let (key, rest) = text.split_at(end);
    if key.is_empty() {
        return Err(syntax("no attribute name"));
    }
    let rest = rest.trim_start();
    let operators = [
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("=", Comparison::Equal),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let found = operators
        .iter()
        .find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
    let (comparison, rest) =
        found.ok_or_else(|| syntax("the embedded chain knows the operators = < <= > >= only"))?;
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('\'') {
        Some(quoted) => quoted
            .split_once('\'')
            .ok_or_else(|| syntax("a quote is not closed"))?,
        None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
    };
    if key == "tx.height" {
        value
            .parse::<u64>()
            .map_err(|_| syntax("tx.height needs a number"))?;
    } else if comparison != Comparison::Equal {
        return Err(syntax("only tx.height can be compared by order"));
    }
    Ok((
        Condition {
            key: key.to_string(),
            comparison,
            value: value.to_string(),
        },
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queries_that_clients_send_are_understood() {
        for text in [
            "tx.hash='AB01'",
            "tm.event='Tx' AND tx.hash='AB01'",
            "message.sender='wasm1abc' AND tx.height>=5 AND tx.height <= 9",
            "wasm._contract_address='wasm1abc'",
            "tx.height=7",
        ] {
            Query::parse(text).unwrap();
        }
        assert_eq!(
            Query::parse("tm.event='NewBlock'").unwrap().event_type(),
            Some("NewBlock")
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in [
            "",
            "tx.hash",
            "a.b CONTAINS 'x'",
            "a.b EXISTS",
            "a.b='x' OR c.d='y'",
            "a.b='x",
            "a.b>3",
        ] {
            assert!(matches!(Query::parse(text), Err(QueryError::Syntax(_))), "{text}");
        }
        assert_eq!(Query::parse(&"x".repeat(513)), Err(QueryError::TooLong));
    }

    #[test]
    fn conditions_on_events_need_the_same_attribute() {
        let events = [Event::new("wasm")
            .with("_contract_address", "a")
            .with("action", "b")];
        let matches = |text: &str| Query::parse(text).unwrap().matches_tx(5, b"tx", &events);
        assert!(matches("wasm._contract_address='a' AND wasm.action='b'"));
        assert!(!matches("wasm._contract_address='b'"));
        assert!(!matches("wasm.action='b' AND tx.height<5"));
    }
}
