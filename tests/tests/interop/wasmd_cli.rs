//! The `wasmd` command line: bank balances, instantiate, execute, smart queries, transactions by hash and by event.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::chain::{CHAIN_ID, Chain, Kind};
use hpc_tests::scene::{self, Scene};
use hpc_tests::{process, program, wait};
use serde_json::Value;

/// The foreign program, with a key of its own.
struct Wasmd {
    binary: PathBuf,
    home: PathBuf,
    rpc: String,
    address: String,
}

impl Wasmd {
    fn new(scene: &Scene) -> Result<Self> {
        let script = program::root().join("scripts/wasmd");
        let binary = PathBuf::from(process::output(Command::new(script).arg("build"))?.trim());
        let home = scene.folder("wasmd")?;
        let mut wasmd = Self {
            binary,
            home,
            rpc: String::new(),
            address: String::new(),
        };
        wasmd.run(&["keys", "add", "alice", "--keyring-backend", "test"])?;
        let address = wasmd.run(&["keys", "show", "alice", "-a", "--keyring-backend", "test"])?;
        address.trim().clone_into(&mut wasmd.address);
        Ok(wasmd)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        process::output(
            Command::new(&self.binary)
                .args(arguments)
                .arg("--home")
                .arg(&self.home),
        )
    }

    fn query(&self, arguments: &[&str]) -> Result<Value> {
        let tail = ["--node", &self.rpc, "-o", "json"];
        let all: Vec<&str> = ["query"].iter().chain(arguments).chain(&tail).copied().collect();
        let text = self.run(&all)?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    /// Sends a transaction and waits until it is in a block; returns what `query tx` says.
    fn transact(&self, arguments: &[&str], gas: &str) -> Result<Value> {
        let tail = [
            "--from",
            "alice",
            "--keyring-backend",
            "test",
            "--chain-id",
            CHAIN_ID,
            "--node",
            &self.rpc,
            "--gas",
            gas,
            "--gas-adjustment",
            "1.5",
            "--gas-prices",
            "0stake",
            "--yes",
            "-o",
            "json",
        ];
        let all: Vec<&str> = ["tx"].iter().chain(arguments).chain(&tail).copied().collect();
        let text = self.run(&all)?;
        let sent: Value = serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))?;
        ensure!(sent.get("code") == Some(&0.into()), "CheckTx refused: {sent}");
        let hash = sent.get("txhash").and_then(Value::as_str).context("no hash")?;
        wait::until("the transaction in a block", Duration::from_secs(20), || {
            self.query(&["tx", hash]).map(Some)
        })
    }
}

/// First attribute of that name in an event of that type.
fn attribute<'a>(tx: &'a Value, event: &str, name: &str) -> Option<&'a str> {
    let events = tx.get("events")?.as_array()?;
    let attributes = events
        .iter()
        .filter(|e| e.get("type").and_then(Value::as_str) == Some(event));
    attributes
        .filter_map(|e| e.get("attributes")?.as_array())
        .flatten()
        .find(|a| a.get("key").and_then(Value::as_str) == Some(name))?
        .get("value")?
        .as_str()
}

#[test]
fn the_wasmd_command_line_drives_the_embedded_chain() -> Result<()> {
    scene::run("wasmd-cli", |scene, _| {
        let mut wasmd = Wasmd::new(scene)?;
        let chain = Chain::start(scene, Kind::Embedded, &[&wasmd.address])?;
        wasmd.rpc = chain.rpc();

        let balances = wasmd.query(&["bank", "balances", &wasmd.address])?;
        assert_eq!(
            balances.pointer("/balances/0/amount").and_then(Value::as_str),
            Some("1000000000000"),
            "{balances}"
        );

        let made = wasmd.transact(
            &["wasm", "instantiate", "1", "{}", "--label", "hpc", "--no-admin"],
            "auto",
        )?;
        assert_eq!(made.get("code"), Some(&0.into()), "{made}");
        let contract = attribute(&made, "instantiate", "_contract_address").context("no contract address")?;

        let smart = |query: &str| wasmd.query(&["wasm", "contract-state", "smart", contract, query]);
        let params = smart(r#"{"params":{}}"#)?;
        assert_eq!(
            params.pointer("/data/heartbeat_interval"),
            Some(&30.into()),
            "{params}"
        );

        let create = r#"{"create_cluster":{"cluster_id":"hpc-cluster-1"}}"#;
        let created = wasmd.transact(&["wasm", "execute", contract, create], "auto")?;
        assert_eq!(created.get("code"), Some(&0.into()), "{created}");
        assert_eq!(
            attribute(&created, "message", "sender"),
            Some(wasmd.address.as_str()),
            "{created}"
        );
        let cluster = smart(r#"{"cluster":{"cluster_id":"hpc-cluster-1"}}"#)?;
        assert_eq!(
            cluster.pointer("/data/cluster/owner").and_then(Value::as_str),
            Some(wasmd.address.as_str()),
            "{cluster}"
        );

        // A fixed gas limit skips the simulation: the contract's refusal is then in the block.
        let again = wasmd.transact(&["wasm", "execute", contract, create], "1000000")?;
        assert_eq!(again.get("code"), Some(&5.into()), "{again}");
        let log = again.get("raw_log").and_then(Value::as_str).unwrap_or_default();
        assert!(log.contains("cluster_exists"), "{log}");

        // The refused one is not among them: without a fee it has no `message` event, here as on wasmd.
        let query = format!("message.sender='{}'", wasmd.address);
        let found = wasmd.query(&["txs", "--query", &query])?;
        assert_eq!(
            found.get("total_count").and_then(Value::as_str),
            Some("2"),
            "{found}"
        );
        Ok(())
    })
}

#[test]
fn the_wasmd_command_line_is_told_what_it_did_wrong() -> Result<()> {
    scene::run("wasmd-cli-errors", |scene, _| {
        let mut wasmd = Wasmd::new(scene)?;
        let chain = Chain::start(scene, Kind::Embedded, &[&wasmd.address])?;
        wasmd.rpc = chain.rpc();
        // An account, but no contract.
        let stranger = &wasmd.address;
        let contract = format!(
            "{}",
            wasmd
                .query(&["wasm", "contract", stranger])
                .err()
                .context("found a contract")?
        );
        assert!(
            contract.contains("not found") || contract.contains("no such contract"),
            "{contract}"
        );
        let hash = "0".repeat(64);
        let tx = format!(
            "{}",
            wasmd.query(&["tx", &hash]).err().context("found a transaction")?
        );
        assert!(tx.contains("not found"), "{tx}");
        Ok(())
    })
}
