//! A chain with the registry contract on it, deployed as the documentation tells an operator to.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::chain::{CHAIN_ID, Chain, Kind};
use crate::cli::Cli;
use crate::program;
use crate::scene::Scene;

/// Parameters of the suite: heartbeats as often as the protocol allows.
const PARAMS: &str = r#"{"heartbeat_interval": 10}"#;

/// Chain, command line and contract.
#[derive(Debug)]
pub struct Registry {
    /// The chain.
    pub chain: Chain,
    /// The operator's command line, with the funded keys `owner` and `relayer`.
    pub cli: Cli,
    /// Address of the contract; the command line's profile names it too.
    pub contract: String,
}

impl Registry {
    /// Makes keys, starts a chain on which they are funded, deploys.
    ///
    /// # Errors
    /// If any step fails.
    pub fn deploy(scene: &Scene, kind: Kind) -> Result<Self> {
        let cli = Cli::new(&scene.folder("operator")?);
        let (owner, relayer) = (cli.add_key("owner")?, cli.add_key("relayer")?);
        let chain = Chain::start(scene, kind, &[&owner, &relayer])?;
        let params = scene.path("params.json");
        fs::write(&params, PARAMS)?;
        let (rpc, params) = (chain.rpc(), params.display().to_string());
        let wasm = program::root()
            .join("target/wasm/hpc_registry.wasm")
            .display()
            .to_string();
        let mut deploy = vec![
            "deploy",
            "--node",
            &rpc,
            "--chain-id",
            CHAIN_ID,
            "--params-file",
            &params,
        ];
        deploy.extend(["--from", "owner", "--gas-prices", "0stake", "--yes"]);
        match kind {
            Kind::Embedded => deploy.extend(["--code-id", "1"]),
            Kind::Wasmd => deploy.extend(["--wasm", &wasm]),
        }
        let deployed = cli.json(&deploy)?;
        let contract = deployed
            .get("contract")
            .and_then(Value::as_str)
            .context("deploy names no contract")?
            .to_owned();
        Ok(Self { chain, cli, contract })
    }
}
