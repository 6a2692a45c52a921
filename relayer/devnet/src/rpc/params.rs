//! Parameters of methods: an object by name or an array by position; integers as strings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::jsonrpc::RpcError;
use crate::chain::{Block, Snapshot};

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

    /// A truth value; false if absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, RpcError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            // As a GET request writes it.
            Some(Value::String(text)) if matches!(text.as_str(), "true" | "false") => Ok(text == "true"),
            Some(other) => Err(RpcError::invalid_params(format!(
                "{name}: expected true or false, got {other}"
            ))),
        }
    }

    /// A 64-bit integer, which CometBFT writes as a string and accepts in no other form.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, RpcError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => text.parse().map(Some).map_err(|_| {
                RpcError::invalid_params(format!("{name}: `{text}` is no integer of at most 64 bits"))
            }),
            Some(other) => Err(RpcError::invalid_params(format!(
                "{name}: invalid 64-bit integer encoding \"{other}\", expected string"
            ))),
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

/// The block at the height that was asked for, or the newest.
pub(super) fn block_at(params: &Params<'_>, snapshot: &Snapshot) -> Result<(u64, Block), RpcError> {
    let tip = snapshot.tip.height;
    let height = match params.integer("height")? {
        None => tip,
        Some(height) => {
            let wanted = u64::try_from(height).ok().filter(|height| *height > 0);
            let wanted = wanted.ok_or_else(|| {
                RpcError::internal(format!("height must be greater than 0, but got {height}"))
            })?;
            if wanted > tip {
                return Err(RpcError::internal(format!(
                    "height {wanted} must be less than or equal to the current blockchain height {tip}"
                )));
            }
            wanted
        }
    };
    let block = snapshot.block(height)?;
    block
        .map(|block| (height, block))
        .ok_or_else(|| RpcError::internal(format!("block {height} is missing")))
}
