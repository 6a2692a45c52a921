//! Calls by GET, as people type them: `/status`, `/block?height=5`, `/tx?hash=0xABC…`. Methods that only read.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::jsonrpc::RpcError;

/// What may be asked by GET. A transaction is sent by POST, so that no link can send one.
const METHODS: [&str; 6] = [
    "status",
    "abci_query",
    "tx",
    "tx_search",
    "block",
    "block_results",
];

/// The parameters of a call in the form that JSON-RPC gives them.
///
/// # Errors
/// `-32601` for other methods, `-32602` for a value that is not written as CometBFT's URIs write it.
pub(super) fn params(method: &str, query: &BTreeMap<String, String>) -> Result<Value, RpcError> {
    if !METHODS.contains(&method) {
        return Err(RpcError::method_not_found());
    }
    let params: Result<Map<String, Value>, RpcError> = query
        .iter()
        .map(|(name, text)| Ok((name.clone(), value(name, text)?)))
        .collect();
    params.map(Value::Object)
}

fn value(name: &str, text: &str) -> Result<Value, RpcError> {
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let wrong =
        |expected: &str| RpcError::invalid_params(format!("{name}: expected {expected}, got `{text}`"));
    Ok(match name {
        "prove" => Value::Bool(text.parse().map_err(|_| wrong("true or false"))?),
        // Bytes stand as 0x and hex.
        "hash" => {
            let digits = text
                .strip_prefix("0x")
                .ok_or_else(|| wrong("0x and the hash in hex"))?;
            let bytes = hex::decode(digits).map_err(|_| wrong("0x and the hash in hex"))?;
            Value::String(STANDARD.encode(bytes))
        }
        "data" => {
            let digits = text
                .strip_prefix("0x")
                .ok_or_else(|| wrong("0x and bytes in hex"))?;
            Value::String(digits.to_string())
        }
        "path" | "query" | "order_by" => {
            Value::String(bare.ok_or_else(|| wrong("a text in double quotes"))?.to_string())
        }
        _ => Value::String(bare.unwrap_or(text).to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, pairs: &[(&str, &str)]) -> Result<Value, RpcError> {
        let query = pairs
            .iter()
            .map(|(name, text)| ((*name).to_string(), (*text).to_string()))
            .collect();
        params(method, &query)
    }

    #[test]
    fn values_take_the_form_that_json_rpc_has() {
        let params = of(
            "tx",
            &[
                ("hash", "0x0aFF"),
                ("prove", "true"),
                ("height", "5"),
                ("query", "\"a='b'\""),
            ],
        )
        .unwrap();
        assert_eq!(
            params,
            serde_json::json!({"hash": "Cv8=", "prove": true, "height": "5", "query": "a='b'"})
        );
    }

    #[test]
    fn what_is_written_otherwise_is_refused() {
        assert!(of("tx", &[("hash", "0aff")]).is_err());
        assert!(of("tx", &[("hash", "0xzz")]).is_err());
        assert!(of("tx_search", &[("query", "a='b'")]).is_err());
        assert!(of("tx", &[("prove", "yes")]).is_err());
        assert!(of("broadcast_tx_sync", &[]).is_err());
    }
}
