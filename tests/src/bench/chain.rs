//! A wasmd chain of a bench's own, whose genesis has codes and a contract.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::fleet::hex;
use crate::process;

/// Its id.
pub const CHAIN_ID: &str = "hpc-bench-1";
/// The contract's code as anybody stores it.
pub const UNPINNED: u64 = 1;
/// The same code pinned, as governance does it.
pub const PINNED: u64 = 2;

const OPTIONS: [&str; 4] = ["--chain-id", CHAIN_ID, "--block-time", "300ms"];

/// A chain that ends with this value.
#[derive(Debug)]
pub struct Chain {
    home: PathBuf,
}

/// A contract that the chain has from its genesis on, under code [`UNPINNED`].
#[derive(Debug, Clone, Copy)]
pub struct Genesis<'a> {
    /// The code.
    pub wasm: &'a [u8],
    /// Its address.
    pub contract: &'a str,
    /// Who made it.
    pub creator: &'a str,
    /// What it stores.
    pub storage: &'a [(Vec<u8>, Vec<u8>)],
}

impl Chain {
    /// Makes the folder and a genesis in which `account` has coins.
    ///
    /// # Errors
    /// If wasmd refuses.
    pub fn init(home: PathBuf, account: &str) -> Result<Self> {
        let chain = Self { home };
        chain.script("reset", &[])?;
        let account = format!("{account}=1000000000000stake");
        chain.script("init", &[&OPTIONS[..], &["--genesis-account", &account]].concat())?;
        Ok(chain)
    }

    /// Adds codes and contract to the genesis and starts; returns the RPC address.
    ///
    /// # Errors
    /// If wasmd does not start.
    pub fn start(&self, genesis: Genesis<'_>) -> Result<String> {
        let path = self.home.join("config/genesis.json");
        let mut file: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let wasm = file
            .pointer_mut("/app_state/wasm")
            .context("the genesis has no wasm module")?;
        add(wasm, genesis);
        fs::write(&path, file.to_string())?;
        self.script("start", &OPTIONS)?;
        Ok(fs::read_to_string(self.home.join("rpc"))?.trim().to_owned())
    }

    fn script(&self, command: &str, arguments: &[&str]) -> Result<()> {
        let mut process = Command::new("scripts/wasmd");
        process.arg(command).arg("--home").arg(&self.home).args(arguments);
        process::output(&mut process).map(drop)
    }

    /// Its folder.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if let Err(error) = self.script("reset", &[]) {
            eprintln!("warning: the chain was not removed: {error:#}");
        }
    }
}

fn add(state: &mut Value, genesis: Genesis<'_>) {
    let Genesis {
        wasm,
        contract,
        creator,
        storage,
    } = genesis;
    let everybody = json!({"permission": "Everybody", "addresses": []});
    let code = |id: u64, pinned: bool| {
        json!({
            "code_id": id.to_string(),
            "code_info": {
                "code_hash": STANDARD.encode(Sha256::digest(wasm)),
                "creator": creator,
                "instantiate_config": everybody,
            },
            "code_bytes": STANDARD.encode(wasm),
            "pinned": pinned,
        })
    };
    let models: Vec<Value> = storage
        .iter()
        .map(|(key, value)| json!({"key": hex(key), "value": STANDARD.encode(value)}))
        .collect();
    let position = json!({"block_height": "0", "tx_index": "0"});
    state["codes"] = json!([code(UNPINNED, false), code(PINNED, true)]);
    state["contracts"] = json!([{
        "contract_address": contract,
        "contract_info": {
            "code_id": UNPINNED.to_string(),
            "creator": creator,
            "admin": creator,
            "label": "silent",
            "created": position,
            "ibc_port_id": "",
            "ibc2_port_id": "",
            "extension": null,
        },
        "contract_state": models,
        "contract_code_history": [{
            "operation": "CONTRACT_CODE_HISTORY_OPERATION_TYPE_GENESIS",
            "code_id": UNPINNED.to_string(),
            "updated": position,
            "msg": {},
        }],
    }]);
    // Names of wasmd's counters: 04 and the name.
    let sequence = |name: &str, value: u64| {
        let key = [&[4], name.as_bytes()].concat();
        json!({"id_key": STANDARD.encode(key), "value": value.to_string()})
    };
    state["sequences"] = json!([sequence("lastCodeId", PINNED + 1), sequence("lastContractId", 2)]);
}
