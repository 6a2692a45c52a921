//! How a transaction is refused: the Cosmos SDK's codes and texts.

/// A refusal as CheckTx, a transaction's result and a simulation report it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{log} (codespace {codespace}, code {code})")]
pub(crate) struct TxError {
    /// `sdk` or `wasm`.
    pub(crate) codespace: &'static str,
    /// Never 0.
    pub(crate) code: u32,
    /// Text for people, ending in the code's own description as the SDK writes it.
    pub(crate) log: String,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $space:literal, $code:literal, $text:literal;)*) => {
        impl TxError {
            $(
                $(#[$doc])*
                pub(crate) fn $name(detail: impl std::fmt::Display) -> Self {
                    Self { codespace: $space, code: $code, log: format!("{detail}: {}", $text) }
                }
            )*
        }
    };
}

codes! {
    tx_decode = "sdk", 2, "tx parse error";
    unauthorized = "sdk", 4, "unauthorized";
    insufficient_funds = "sdk", 5, "insufficient funds";
    unknown_request = "sdk", 6, "unknown request";
    invalid_address = "sdk", 7, "invalid address";
    invalid_pubkey = "sdk", 8, "invalid pubkey";
    unknown_address = "sdk", 9, "unknown address";
    invalid_coins = "sdk", 10, "invalid coins";
    out_of_gas = "sdk", 11, "out of gas";
    memo_too_large = "sdk", 12, "memo too large";
    insufficient_fee = "sdk", 13, "insufficient fee";
    too_many_signatures = "sdk", 14, "maximum number of signatures exceeded";
    no_signatures = "sdk", 15, "no signatures supplied";
    invalid_request = "sdk", 18, "invalid request";
    key_not_found = "sdk", 22, "key not found";
    invalid_height = "sdk", 26, "invalid height";
    timeout_height = "sdk", 30, "tx timeout height";
    unknown_extension = "sdk", 31, "unknown extension options";
    wrong_sequence = "sdk", 32, "incorrect account sequence";
    not_supported = "sdk", 37, "feature not supported";
    invalid_gas_limit = "sdk", 41, "invalid gas limit";
    instantiate_failed = "wasm", 4, "instantiate wasm contract failed";
    execute_failed = "wasm", 5, "execute wasm contract failed";
    query_failed = "wasm", 9, "query wasm contract failed";
    invalid_contract_message = "wasm", 10, "invalid CosmosMsg from the contract";
    migration_failed = "wasm", 11, "migrate wasm contract failed";
    empty = "wasm", 12, "empty";
    exceeds_limit = "wasm", 13, "exceeds limit";
    invalid = "wasm", 14, "invalid";
    invalid_event = "wasm", 21, "invalid event";
    no_such_contract = "wasm", 22, "no such contract";
    no_such_code = "wasm", 28, "no such code";
    vm = "wasm", 29, "wasmvm error";
}

impl TxError {
    /// Puts `context: ` before the text.
    pub(crate) fn context(mut self, context: impl std::fmt::Display) -> Self {
        self.log = format!("{context}: {}", self.log);
        self
    }
}
