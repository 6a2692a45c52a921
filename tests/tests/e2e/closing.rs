//! A cluster comes and goes: what was paid for it comes back, and its id is free.

use anyhow::{Context, Result, ensure};
use hpc_tests::cli::Cli;
use hpc_tests::outcome::Outcome;
use hpc_tests::registry::Registry;
use hpc_tests::scene;

const CLUSTER: &str = "hpc-cluster-1";

fn holds(cli: &Cli, key: &str) -> Result<u128> {
    let answer = cli.json(&["query", "bank", "balance", key, "--denom", "stake"])?;
    let amount = answer.pointer("/balances/0/amount");
    amount
        .and_then(serde_json::Value::as_str)
        .with_context(|| format!("no balance in {answer}"))?
        .parse()
        .context("no number")
}

#[test]
fn a_closed_cluster_gives_its_deposit_back_and_its_id_is_free() -> Result<()> {
    scene::run("closing", |scene, kind| {
        let Registry {
            chain: _chain, cli, ..
        } = Registry::deploy(scene, kind)?;
        let tx = |arguments: &[&str], from: &str| {
            let all = [&["tx", "hpc"], arguments, &["--from", from, "--yes"]].concat();
            cli.run(&all).map(drop)
        };
        let refused = |arguments: &[&str], code: &str| -> Result<()> {
            let all = [&["tx", "hpc"], arguments, &["--from", "relayer", "--yes"]].concat();
            let said = cli.fails(&all)?;
            ensure!(said.contains(code), "not {code}: {said}");
            Ok(())
        };
        let mut outcome = Outcome::new(kind, "closing");

        tx(&["update-params", "--cluster-deposit", "1000000stake"], "owner")?;
        let before = holds(&cli, "relayer")?;
        refused(&["create-cluster", CLUSTER], "invalid_deposit")?;
        let create = ["create-cluster", CLUSTER, "--deposit", "1000000stake"];
        tx(&create, "relayer")?;
        outcome.set("paid", (before - holds(&cli, "relayer")?).to_string());
        tx(&["activate-cluster", CLUSTER], "relayer")?;
        refused(&["close-cluster", CLUSTER], "invalid_state")?;
        tx(&["deactivate-cluster", CLUSTER], "relayer")?;

        tx(&["close-cluster", CLUSTER], "relayer")?;
        outcome.set(
            "lost after closing",
            (before - holds(&cli, "relayer")?).to_string(),
        );
        let gone = cli.fails(&["query", "hpc", "cluster", CLUSTER])?;
        ensure!(gone.contains("unknown_cluster"), "{gone}");
        refused(&["close-cluster", CLUSTER], "unknown_cluster")?;

        // Somebody else may have it now.
        tx(&create, "owner")?;
        let heir = cli.json(&["query", "hpc", "cluster", CLUSTER])?;
        outcome.set(
            "active again",
            heir.get("active").cloned().context("active is missing")?,
        );
        assert_eq!(holds(&cli, "relayer")?, before);
        outcome.save()
    })
}
