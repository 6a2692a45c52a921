//! Parameters of methods: an object by name or an array by position; integers as numbers or strings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::jsonrpc::RpcError;

/// The parameters of one call.
pub(super) struct Params<'a> {
    value: &'a Value,
    /// Names in positional order.
    names: &'a [&'a str],
}

impl<'a> Params<'a> {
    pub(super) fn new(value: &'a Value, names: &'a [&'a str]) -> Result<Self, RpcError> {
        match value {
            Value::Null | Value::Object(_) => {}
            Value::Array(list) if list.len() <= names.len() => {}
            Value::Array(list) => {
                return Err(RpcError::invalid_params(format!(
                    "expected {} parameters ({names:?}), got {}",
                    names.len(),
                    list.len()
                )));
            }
            _ => return Err(RpcError::invalid_params("params must be an object or an array")),
        }
        Ok(Self { value, names })
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let value = match self.value {
            Value::Array(list) => list.get(self.names.iter().position(|n| *n == name)?),
            other => other.get(name),
        };
        value.filter(|value| !value.is_null())
    }

    /// A string; empty if absent.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, RpcError> {
        match self.get(name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(RpcError::invalid_params(format!(
                "{name}: expected a string, got {other}"
            ))),
        }
    }

    /// An integer, as a number or (as CometBFT's own clients send 64-bit ones) as a string.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, RpcError> {
        let wrong =
            |value: &Value| RpcError::invalid_params(format!("{name}: expected an integer, got {value}"));
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(value @ Value::String(text)) => text.parse().map(Some).map_err(|_| wrong(value)),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| wrong(value)),
        }
    }

    /// Bytes in base64.
    pub(super) fn base64(&self, name: &str) -> Result<Vec<u8>, RpcError> {
        STANDARD
            .decode(self.text(name)?)
            .map_err(|error| RpcError::invalid_params(format!("{name}: {error}")))
    }

    /// Bytes in hex, upper or lower case.
    pub(super) fn hex(&self, name: &str) -> Result<Vec<u8>, RpcError> {
        hex::decode(self.text(name)?).map_err(|error| RpcError::invalid_params(format!("{name}: {error}")))
    }
}
