//! What a chain's answer to a transaction means. Everything is decided by (codespace, code); where CometBFT and the
//! SDK give only text (JSON-RPC errors, the numbers of a sequence mismatch) this file reads it, and no other does.
//! The texts are recorded from wasmd 0.70.3 (`code/tests.rs`).

use serde::{Deserialize, Serialize};

use crate::gas::Coin;

/// How a caller should react.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The same bytes may be accepted later.
    Transient,
    /// These bytes will not be accepted; another transaction may be.
    Rejected,
    /// Nothing of this sender will be accepted until an operator acts.
    Fatal,
}

/// The meaning of an answer of `broadcast_tx_sync`, of a simulation, or of a transaction's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// Code 0: passed CheckTx (or, of a result: took effect).
    Accepted,
    /// "tx already exists in cache": the endpoint saw these bytes before. Proves nothing about inclusion.
    AlreadyInCache,
    /// The endpoint's mempool has no room.
    MempoolFull,
    /// The endpoint expects another sequence. Both are absent when the text did not show them.
    WrongSequence {
        /// What the endpoint's check state wants next.
        expected: Option<u64>,
        /// What the transaction carries.
        got: Option<u64>,
    },
    /// The height is above the transaction's `timeout_height`.
    TimeoutHeight,
    /// The gas limit was too low.
    OutOfGas,
    /// The fee is below the endpoint's minimum gas price.
    InsufficientFee,
    /// The account cannot pay fee or funds.
    InsufficientFunds,
    /// A signature, account number or chain id that does not verify.
    Unauthorized,
    /// The transaction is larger than the chain takes.
    TxTooLarge,
    /// The account that is to pay the fee by a grant (x/feegrant) has not granted it, or not any more.
    FeeGrant,
    /// The contract refused (its own error text is in `log`).
    ContractError,
    /// Anything else.
    Other,
}

impl Verdict {
    /// The class that drives retry; `None` for [`Verdict::Accepted`].
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        Some(match self {
            Self::Accepted => return None,
            Self::AlreadyInCache | Self::MempoolFull | Self::WrongSequence { .. } => Class::Transient,
            Self::TimeoutHeight | Self::OutOfGas | Self::TxTooLarge | Self::ContractError | Self::Other => {
                Class::Rejected
            }
            Self::InsufficientFee | Self::InsufficientFunds | Self::FeeGrant | Self::Unauthorized => {
                Class::Fatal
            }
        })
    }

    /// What the operator can do, naming the setting.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Accepted => "nothing to do",
            Self::AlreadyInCache => {
                "wait: the same bytes were sent before; query the transaction by its hash"
            }
            Self::MempoolFull => "wait for a few blocks, or raise mempool.size of the node",
            Self::WrongSequence { .. } => {
                "wait for the key's other transaction to be included; use one process per key"
            }
            Self::TimeoutHeight => "send again; if it repeats, the node is behind or blocks are too fast",
            Self::OutOfGas => "raise --gas or --gas-adjustment",
            Self::InsufficientFee => "raise --gas-prices to the node's minimum-gas-prices",
            Self::InsufficientFunds => "send tokens to the signing address",
            Self::FeeGrant => {
                "let the granter grant fees to the signing address anew, or pay by another account"
            }
            Self::Unauthorized => "check --chain-id and that the key is the account's",
            Self::TxTooLarge => "send fewer items in one transaction",
            Self::ContractError => "see the contract's code in the message",
            Self::Other => "see the codespace, code and log",
        }
    }
}

/// Reads an ABCI answer: CheckTx, a transaction's result, or a query's.
///
/// `codespace` and `code` decide; `log` only gives the numbers of a sequence mismatch.
#[must_use]
pub fn of_abci(codespace: &str, code: u32, log: &str) -> Verdict {
    match (codespace, code) {
        (_, 0) => Verdict::Accepted,
        // "fee-grant not found" is the SDK's own code of anything that is not found.
        ("feegrant", _) => Verdict::FeeGrant,
        _ if is_fee_grant_text(log) => Verdict::FeeGrant,
        ("sdk", 4 | 8) => Verdict::Unauthorized,
        ("sdk", 5) => Verdict::InsufficientFunds,
        ("sdk", 11) => Verdict::OutOfGas,
        ("sdk", 13) => Verdict::InsufficientFee,
        ("sdk", 19) => Verdict::AlreadyInCache,
        ("sdk", 20) => Verdict::MempoolFull,
        // 41: its gas limit is above what a block may use.
        ("sdk", 21 | 41) => Verdict::TxTooLarge,
        ("sdk", 30) => Verdict::TimeoutHeight,
        ("sdk", 32) => {
            let (expected, got) = sequences(log);
            Verdict::WrongSequence { expected, got }
        }
        // Instantiation, execution, query, migration failed.
        ("wasm", 4 | 5 | 9 | 11) => Verdict::ContractError,
        _ => Verdict::Other,
    }
}

/// Reads a JSON-RPC error of `broadcast_tx_sync`, where CometBFT gives text alone; `data` is the error's data member.
#[must_use]
pub fn of_broadcast_error(data: &str) -> Verdict {
    if is_request_too_large(data) {
        Verdict::TxTooLarge
    } else if data.contains("tx already exists in cache") {
        Verdict::AlreadyInCache
    } else if data.contains("mempool is full") {
        Verdict::MempoolFull
    } else if data.contains("Tx too large") || data.contains("tx too large") {
        Verdict::TxTooLarge
    } else {
        Verdict::Other
    }
}

/// Whether a JSON-RPC error says that the request's body is larger than the node reads (`rpc.max_body_bytes`).
#[must_use]
pub fn is_request_too_large(data: &str) -> bool {
    data.contains("request body too large") || data.contains("length limit exceeded")
}

/// Reads the text of a failed simulation: an `abci_query` answers with code and codespace of the gRPC layer, and puts
/// the reason into the log.
#[must_use]
pub fn of_simulation(codespace: &str, code: u32, log: &str) -> Verdict {
    let (expected, got) = sequences(log);
    if expected.is_some() {
        return Verdict::WrongSequence { expected, got };
    }
    if is_contract_text(log) {
        return Verdict::ContractError;
    }
    if is_fee_grant_text(log) {
        return Verdict::FeeGrant;
    }
    if log.contains("insufficient funds") || log.contains("insufficient fund") {
        return Verdict::InsufficientFunds;
    }
    if log.contains("out of gas") {
        return Verdict::OutOfGas;
    }
    of_abci(codespace, code, log)
}

/// Whether a failed `abci_query` says that the thing asked for does not exist.
#[must_use]
pub fn is_not_found(codespace: &str, code: u32, log: &str) -> bool {
    (codespace == "sdk" && matches!(code, 22 | 38))
        || (codespace == "wasm" && code == 8)
        || log.contains("code = NotFound")
        || log.contains("no such contract")
}

/// Whether a failed `abci_query` says that the node does not serve this path.
#[must_use]
pub fn is_unknown_path(codespace: &str, code: u32, log: &str) -> bool {
    codespace == "sdk" && code == 6 && log.starts_with("unknown query path")
}

/// Whether a failed `abci_query` says that the node has seen no block since it came up, and so can execute nothing: a
/// simulation breaks off in wasmd for want of a block time, other questions in the SDK.
#[must_use]
pub fn is_not_ready(log: &str) -> bool {
    // A contract's own words prove nothing.
    !is_contract_text(log) && NOT_READY.iter().any(|text| log.contains(text))
}

/// Whether a refusal of CheckTx says the same: until its first block a node takes every account's number to be 0, so that a
/// signature over another one does not verify there.
#[must_use]
pub fn is_checked_too_early(verdict: &Verdict, log: &str, account_number: u64) -> bool {
    account_number != 0
        && *verdict == Verdict::Unauthorized
        && log.contains("please verify account number (0)")
}

/// The fees of which a node asks for one, by its refusal of a lower one:
/// `insufficient fees; got: 1stake required: 2000stake,3atom: insufficient fee`.
#[must_use]
pub fn required_fees(log: &str) -> Vec<Coin> {
    let Some((_, rest)) = log.split_once("required: ") else {
        return Vec::new();
    };
    let coins = rest.split_once(": ").map_or(rest, |(coins, _)| coins);
    coins.split(',').filter_map(|coin| coin.parse().ok()).collect()
}

/// The log of a node that broke off, without the stack that the SDK appends.
#[must_use]
pub fn without_stack(log: &str) -> &str {
    log.split_once("\nstack:")
        .map_or(log, |(text, _)| text.trim_end())
}

/// Whether a JSON-RPC error of `tx` says that the index has no such transaction.
#[must_use]
pub fn is_tx_not_found(data: &str) -> bool {
    data.starts_with("tx (") && data.contains("not found")
}

/// Whether a JSON-RPC error of `tx` says that the node keeps no index of transactions (`tx_index.indexer = "null"`).
#[must_use]
pub fn is_index_off(text: &str) -> bool {
    text.contains("transaction indexing is disabled")
}

/// Whether a JSON-RPC error of `block` says that the height was pruned; the lowest height kept, if it was shown.
#[must_use]
pub fn pruned_below(data: &str) -> Option<u64> {
    let rest = data.split_once("lowest height is ")?.1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Whether a JSON-RPC error of `block_results` says that the node will not have them (again): pruned with their block, or
/// never kept (`storage.discard_abci_responses`).
#[must_use]
pub fn is_not_kept(text: &str) -> bool {
    pruned_below(text).is_some() || text.contains("node is not persisting")
}

/// Whether it says that they are not there. Where the node has the next block they are gone: until then they may still be on
/// their way.
#[must_use]
pub fn is_results_absent(text: &str) -> bool {
    text.contains("could not find results for height")
}

/// The contract's own message out of a log, without the frames that SDK and wasmd put around it.
#[must_use]
pub fn contract_message(log: &str) -> &str {
    let mut text = log;
    if let Some((_, rest)) = text.split_once("desc = ") {
        text = rest;
    }
    if let Some((_, rest)) = text.split_once("failed to execute message; message index: ") {
        // The index, then perhaps "dispatch", then the message.
        text = rest.split_once(": ").map_or(rest, |(_, r)| r);
    }
    let end = CONTRACT_FRAMES.iter().filter_map(|frame| text.find(frame)).min();
    end.and_then(|e| text.get(..e))
        .unwrap_or(text)
        .trim_end_matches(": ")
}

/// The contract's sentence without the code in front and the remedy behind, which are shown apart.
#[must_use]
pub fn contract_sentence(code: hpc_schema::code::Code, message: &str) -> String {
    let after = message
        .split_once(&format!("{code}: "))
        .map_or(message, |(_, rest)| rest);
    let behind = format!("; {}", code.remedy());
    let text = after.split_once(&behind).map_or(after, |(sentence, _)| sentence);
    if text.trim().is_empty() {
        message.to_owned()
    } else {
        text.trim().to_owned()
    }
}

/// The registry's stable code out of a log: the first part of its message that is one of its words.
#[must_use]
pub fn contract_code(log: &str) -> Option<hpc_schema::code::Code> {
    contract_message(log)
        .split(": ")
        .find_map(|part| hpc_schema::code::Code::from_word(part.trim()))
}

/// wasmd and the SDK, before a node's first block.
const NOT_READY: [&str; 2] = [
    "recovered: Block (unix) time must never be empty or negative",
    "is not ready; please wait for first block",
];

/// What wasmd appends to a contract's error.
const CONTRACT_FRAMES: [&str; 4] = [
    "execute wasm contract failed",
    "instantiate wasm contract failed",
    "query wasm contract failed",
    "migrate wasm contract failed",
];

/// Whether a log carries a contract's own error.
#[must_use]
pub fn is_contract_text(log: &str) -> bool {
    CONTRACT_FRAMES.iter().any(|frame| log.contains(frame))
}

/// `wasm1granter does not allow to pay fees for wasm1payer: fee-grant not found: not found`, `… fee limit exceeded`.
fn is_fee_grant_text(log: &str) -> bool {
    log.contains("does not allow to pay fees for")
}

/// `account sequence mismatch, expected 5, got 4`.
fn sequences(log: &str) -> (Option<u64>, Option<u64>) {
    let Some((_, rest)) = log.split_once("account sequence mismatch") else {
        return (None, None);
    };
    (number_after(rest, "expected "), number_after(rest, "got "))
}

fn number_after(text: &str, word: &str) -> Option<u64> {
    let rest = text.split_once(word)?.1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests;
