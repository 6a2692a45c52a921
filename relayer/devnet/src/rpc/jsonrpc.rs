//! JSON-RPC 2.0 envelopes and CometBFT's error codes.

use serde::Deserialize;
use serde_json::{Value, json};

/// A request as it comes in. Without an id it is a notification and gets no answer.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    #[serde(default)]
    pub(super) id: Option<Value>,
    #[serde(default)]
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
}

/// An error of JSON-RPC.
#[derive(Debug)]
pub(super) struct RpcError {
    code: i32,
    message: &'static str,
    data: String,
}

impl RpcError {
    fn new(code: i32, message: &'static str, data: impl std::fmt::Display) -> Self {
        Self {
            code,
            message,
            data: data.to_string(),
        }
    }

    pub(super) fn parse(data: impl std::fmt::Display) -> Self {
        Self::new(-32700, "Parse error. Invalid JSON", data)
    }

    pub(super) fn invalid_request(data: impl std::fmt::Display) -> Self {
        Self::new(-32600, "Invalid Request", data)
    }

    pub(super) fn method_not_found() -> Self {
        Self::new(-32601, "Method not found", "")
    }

    pub(super) fn invalid_params(data: impl std::fmt::Display) -> Self {
        Self::new(
            -32602,
            "Invalid params",
            format!("error converting json params to arguments: {data}"),
        )
    }

    pub(super) fn internal(data: impl std::fmt::Display) -> Self {
        Self::new(-32603, "Internal error", data)
    }

    pub(super) fn server(data: impl std::fmt::Display) -> Self {
        Self::new(-32000, "Server error", data)
    }
}

/// The envelope of an answer.
pub(super) fn envelope(id: Option<&Value>, outcome: Result<Value, RpcError>) -> Value {
    let mut envelope = match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "result": result}),
        Err(RpcError { code, message, data }) => {
            let mut error = json!({"code": code, "message": message});
            if let (false, Some(fields)) = (data.is_empty(), error.as_object_mut()) {
                fields.insert("data".to_string(), Value::String(data));
            }
            json!({"jsonrpc": "2.0", "error": error})
        }
    };
    if let (Some(id), Some(fields)) = (id, envelope.as_object_mut()) {
        fields.insert("id".to_string(), id.clone());
    }
    envelope
}

/// What a method answers.
pub(super) type Outcome = Result<Value, RpcError>;
