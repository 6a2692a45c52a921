//! CosmJS (`tests/interop/cosmjs`): connect over HTTP and websocket, execute, query, wait for inclusion.

use std::process::Command;

use anyhow::{Context, Result};
use hpc_tests::chain::{CHAIN_ID, Chain, Kind};
use hpc_tests::cli::Cli;
use hpc_tests::{node, scene};
use serde_json::Value;

const CREATE: &str = r#"{"create_cluster":{"cluster_id":"hpc-cluster-1"}}"#;

#[test]
fn cosmjs_drives_the_embedded_chain() -> Result<()> {
    scene::run("cosmjs", |scene, _| {
        let cli = Cli::new(&scene.folder("operator")?);
        let address = cli.add_key("alice")?;
        let chain = Chain::start(scene, Kind::Embedded, &[&address])?;
        let mut script: Command = node::script("cosmjs", "cosmjs.mjs")?;
        script
            .env("RPC", chain.rpc())
            .env("CHAIN_ID", CHAIN_ID)
            .env("MNEMONIC_FILE", cli.words("alice"));
        script
            .env("EXECUTE", CREATE)
            .env("REFUSED", CREATE)
            .env("REFUSAL", "cluster_exists");
        script.env("QUERY", r#"{"cluster":{"cluster_id":"hpc-cluster-1"}}"#);
        let answer = node::run(&mut script)?;
        let owner = answer
            .pointer("/answer/cluster/owner")
            .and_then(Value::as_str)
            .context("no owner in the answer")?;
        assert_eq!(owner, address);
        Ok(())
    })
}
