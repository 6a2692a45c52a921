//! What a node says about its blocks so that others need not believe it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, OTHER_TX, at};
use super::error::RpcError;
use super::wire::number;
use crate::hash::TxHash;
use crate::proof::Inclusion;

/// Validators on a page, as many as a node gives.
const PER_PAGE: u32 = 100;
/// Pages that are read at most.
const MAX_PAGES: u32 = 100;

#[derive(Deserialize)]
struct ProvenTx {
    #[serde(deserialize_with = "number")]
    height: u64,
    tx: String,
    proof: Outer,
}

#[derive(Deserialize)]
struct Outer {
    proof: Path,
}

#[derive(Deserialize)]
struct Path {
    #[serde(deserialize_with = "number")]
    total: u64,
    #[serde(deserialize_with = "number")]
    index: u64,
    #[serde(default)]
    aunts: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Commit {
    signed_header: Value,
}

#[derive(Deserialize)]
struct Validators {
    #[serde(default)]
    validators: Vec<Value>,
    #[serde(default, deserialize_with = "number")]
    total: u64,
}

impl Client {
    /// A transaction's height and bytes, and its path in the block's tree.
    ///
    /// # Errors
    /// [`RpcError`]; [`RpcError::Response`] if the endpoint does not have it.
    pub async fn tx_with_proof(&self, hash: TxHash) -> Result<(u64, Vec<u8>, Inclusion), RpcError> {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;

        let params = json!({ "hash": STANDARD.encode(hash.as_bytes()), "prove": true });
        let asked_for = |found: ProvenTx| {
            let bytes = STANDARD.decode(&found.tx).map_err(|e| e.to_string())?;
            if TxHash::of(&bytes) == hash {
                Ok((found, bytes))
            } else {
                Err(OTHER_TX.to_owned())
            }
        };
        let (found, bytes) = self.call("tx", params, asked_for).await?;
        let Path { total, index, aunts } = found.proof.proof;
        let inclusion = Inclusion {
            index,
            total,
            aunts: aunts.unwrap_or_default(),
        };
        Ok((found.height, bytes, inclusion))
    }

    /// A block's header and the validators' signatures over its hash, as the endpoint writes them.
    ///
    /// # Errors
    /// [`RpcError`]; [`RpcError::Response`] if the height is not there or was pruned.
    pub async fn commit(&self, height: u64) -> Result<Value, RpcError> {
        let header = |commit: Commit| Ok(commit.signed_header);
        self.call("commit", at(Some(height)), header).await
    }

    /// The validators of a height, as the endpoint writes them.
    ///
    /// # Errors
    /// [`RpcError`]; [`RpcError::Response`] if the height is not there or was pruned.
    pub async fn validators(&self, height: u64) -> Result<Value, RpcError> {
        let mut all = Vec::new();
        for page in 1..=MAX_PAGES {
            let params = json!({
                "height": height.to_string(), "page": page.to_string(), "per_page": PER_PAGE.to_string(),
            });
            let answer: Validators = self.call("validators", params, Ok::<_, String>).await?;
            all.extend(answer.validators);
            if u64::try_from(all.len()).unwrap_or(u64::MAX) >= answer.total {
                return Ok(Value::Array(all));
            }
        }
        self.read("validators", Err("more than 10000 validators".to_owned()))
    }
}
