//! Somebody else pays the fees: a key without any tokens settles.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::chain::{CHAIN_ID, Kind};
use hpc_tests::scene::{self, Scene};
use hpc_tests::site::{SETTLED, Site};
use hpc_tests::{process, program, wait};
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";

/// The command line of wasmd with the owner's key.
struct Wasmd {
    binary: PathBuf,
    home: PathBuf,
    rpc: String,
}

impl Wasmd {
    fn of_owner(scene: &Scene, site: &Site) -> Result<Self> {
        let script = program::root().join("scripts/wasmd");
        let built = process::output(Command::new(script).arg("build"))?;
        let wasmd = Self {
            binary: PathBuf::from(built.trim()),
            home: scene.folder("wasmd")?,
            rpc: site.chain.rpc(),
        };
        // It reads the words from its standard input alone.
        let import = r#"exec "$0" keys add owner --recover --keyring-backend test --home "$1" <"$2""#;
        let mut shell = Command::new("sh");
        shell.args(["-c", import]).arg(&wasmd.binary).arg(&wasmd.home);
        process::output(shell.arg(site.cli.words("owner")))?;
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

    /// Sends a transaction of the owner, and waits until it is in a block.
    fn feegrant(&self, arguments: &[&str]) -> Result<()> {
        let tail = [
            "--from",
            "owner",
            "--keyring-backend",
            "test",
            "--chain-id",
            CHAIN_ID,
            "--node",
            &self.rpc,
            "--gas",
            "300000",
            "--gas-prices",
            "0stake",
            "--yes",
            "-o",
            "json",
        ];
        let all: Vec<&str> = ["tx", "feegrant"]
            .iter()
            .chain(arguments)
            .chain(&tail)
            .copied()
            .collect();
        let sent: Value = serde_json::from_str(&self.run(&all)?)?;
        ensure!(sent.get("code") == Some(&0.into()), "{sent}");
        let hash = sent.get("txhash").and_then(Value::as_str).context("no hash")?;
        let tx = wait::until("the transaction in a block", SETTLED, || {
            let text = self.run(&["query", "tx", hash, "--node", &self.rpc, "-o", "json"]);
            Ok(text.ok())
        })?;
        let tx: Value = serde_json::from_str(&tx)?;
        ensure!(tx.get("code") == Some(&0.into()), "{tx}");
        Ok(())
    }
}

fn has(site: &Site, address: &str) -> Result<u128> {
    let answer = site
        .cli
        .json(&["query", "bank", "balance", address, "--denom", "stake"])?;
    let amount = answer.pointer("/balances/0/amount").and_then(Value::as_str);
    amount.map_or(Ok(0), |text| Ok(text.parse()?))
}

fn readiness(site: &Site) -> Result<String> {
    let url = format!("http://127.0.0.1:{}/readyz", site.ops_port());
    process::output(Command::new("curl").args(["-s", "--max-time", "5", &url]))
}

#[test]
fn a_key_without_tokens_settles_by_a_fee_grant_and_a_chain_without_grants_is_refused() -> Result<()> {
    scene::run("feegrant", |scene, kind| {
        let mut site = Site::prepare(scene, kind)?;
        site.activate()?;
        site.provider_run(&["keys", "add", "penniless"])?;
        let address = site.provider_run(&["keys", "address", "penniless"])?;
        let address = address.trim();
        let granter = site.cli.run(&["keys", "show", "owner", "--address"])?;
        let granter = granter.trim().to_owned();
        site.set("KEYS__RELAYER", "penniless");
        site.set("CHAIN__FEE_GRANTER", granter.clone());
        site.set("CHAIN__GAS_PRICE", "0.025stake");
        if kind == Kind::Embedded {
            let refused = site.start_provider().err().context("it started")?;
            ensure!(refused.to_string().contains("chain.fee_granter"), "{refused}");
            return Ok(());
        }
        let wasmd = Wasmd::of_owner(scene, &site)?;
        wasmd.feegrant(&["grant", &granter, address, "--spend-limit", "100000000stake"])?;
        let before = has(&site, &granter)?;
        site.start_provider()?;
        let agent = site.agent(scene, NODE)?;
        let process = agent.start()?;
        site.wait_state(NODE, "active")?;
        ensure!(has(&site, address)? == 0, "it has tokens of its own");
        ensure!(has(&site, &granter)? < before, "the granter has not paid");

        // Without the grant reports wait, readiness names the key, and with a new one they go on.
        wasmd.feegrant(&["revoke", &granter, address])?;
        wait::until("readiness to name the granter", SETTLED, || {
            let said = readiness(&site)?;
            Ok(
                (said.contains("chain.fee_granter") && said.contains("does not allow to pay fees"))
                    .then_some(()),
            )
        })?;
        let waiting = site.sequence(NODE)?;
        wasmd.feegrant(&["grant", &granter, address, "--spend-limit", "100000000stake"])?;
        site.wait_sequence(NODE, waiting + 1)?;
        wait::until("readiness to say no more of it", SETTLED, || {
            Ok((!readiness(&site)?.contains("chain.fee_granter")).then_some(()))
        })?;
        drop(process);
        Ok(())
    })
}
