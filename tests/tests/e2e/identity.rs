//! Who a node is: several with one token, a new key for one that runs.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::scene;
use hpc_tests::site::{CLUSTER, SETTLED, Site};
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";

fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .with_context(|| format!("{pointer} is missing in {value}"))
}

#[test]
fn a_node_joins_with_approval_and_rotates_its_key_while_it_runs() -> Result<()> {
    scene::run("identity", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let mut outcome = Outcome::new(kind, "identity");

        // A join token that asks for approval: the agent says what it waits for.
        let token = site.provider_run(&[
            "node-token",
            "join",
            "--cluster-id",
            CLUSTER,
            "--uses",
            "5",
            "--approval",
        ])?;
        let agent = site.agent_with(scene, NODE, token.trim())?;
        let config = agent.path("config.yaml");
        agent.calm()?;
        let status = || -> Result<Value> {
            // Not healthy yet: it ends with 1 and prints all the same.
            Ok(serde_json::from_str(
                &agent.run_whatever(&["status", "--config", &config, "-o", "json"])?,
            )?)
        };
        let mut process = agent.start()?;
        wait::until("the agent to wait for approval", SETTLED, || {
            let problems = status()?.get("problems").cloned().unwrap_or_default();
            Ok(problems.to_string().contains("operator's approval").then_some(()))
        })?;
        ensure!(site.node(NODE).is_err(), "registered without approval");
        site.provider_run(&["node-token", "approve", NODE])?;
        site.wait_state(NODE, "active")?;
        outcome.set("state after approval", site.state(NODE)?);
        let before = site.node(NODE)?;

        // A new key: made here, a token for it there, registered with the old key's consent.
        let said = agent.run(&["key", "rotate", "--config", &config, "-o", "json"])?;
        let said: Value = serde_json::from_str(&said)?;
        let next = text(&said, "/next_public_key")?.to_owned();
        agent.write_token("next-token", &site.token(NODE, &next, "1h")?)?;
        let file = agent.path("next-token");
        agent.run(&["key", "rotate", "--config", &config, "--token-file", &file])?;
        let after = site.node(NODE)?;
        ensure!(text(&after, "/agent_pubkey")? == next, "{after}");
        ensure!(text(&before, "/agent_pubkey")? != next);
        outcome.set("state after the rotation", site.state(NODE)?);

        // The process that ran before goes on under the new registration, and nothing failed meanwhile.
        site.wait_sequence(NODE, 2)?;
        process.check_alive()?;
        let seen = status()?;
        ensure!(seen.pointer("/status/failed") == Some(&Value::from(0)), "{seen}");
        ensure!(seen.get("outages") == Some(&Value::Array(Vec::new())), "{seen}");
        ensure!(seen.get("healthy") == Some(&Value::Bool(true)), "{seen}");
        let (_, ends) = site.ends(NODE)?;
        outcome.set("a report was refused", ends.iter().any(|e| e.ended == "refused"));
        let shown = agent.run(&["key", "show", "--key", &agent.path("keys/agent.key")])?;
        ensure!(shown.trim() == next, "{shown}");
        ensure!(fs::read_to_string(agent.path("keys/agent.pub"))?.trim() == next);
        ensure!(process.stop(Duration::from_secs(20))?.success());
        outcome.save()
    })
}

#[test]
fn a_node_that_boots_without_its_disk_goes_on_by_its_key_in_the_same_registration() -> Result<()> {
    scene::run("diskless", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let mut outcome = Outcome::new(kind, "diskless");
        let agent = site.agent(scene, NODE)?;
        let mut process = agent.start()?;
        site.wait_state(NODE, "active")?;
        site.wait_sequence(NODE, 1)?;
        let before = site.node(NODE)?;
        // As a node that is switched off: what it held in memory is gone, its image has the key and a token that is used.
        process.kill()?;
        fs::remove_dir_all(agent.path("state"))?;
        for file in ["client.crt", "client.key", "ca.crt"] {
            fs::remove_file(agent.path(file))?;
        }
        let mut process = agent.start()?;
        let seen = |node: &Value| node.pointer("/sequence").and_then(Value::as_u64);
        let floor = seen(&before).context("no sequence")? + 64;
        wait::until("a report of the node that has come back", SETTLED, || {
            Ok(seen(&site.node(NODE)?).filter(|n| *n > floor))
        })?;
        let after = site.node(NODE)?;
        let epoch = |node: &Value| node.pointer("/epoch").cloned();
        ensure!(
            epoch(&before).is_some() && epoch(&before) == epoch(&after),
            "{before}\n{after}"
        );
        outcome.set("state after the loss", site.state(NODE)?);
        let (_, ends) = site.ends(NODE)?;
        outcome.set("a report was refused", ends.iter().any(|e| e.ended == "refused"));
        ensure!(process.stop(Duration::from_secs(20))?.success());
        outcome.save()
    })
}
