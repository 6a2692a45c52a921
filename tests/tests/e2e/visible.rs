//! What is said to be done is found in blocks, and what is on chain can be asked for.

use anyhow::{Context as _, Result, ensure};
use hpc_tests::ledger::{Ledger, Name};
use hpc_tests::outcome::Outcome;
use hpc_tests::raw::{key, public};
use hpc_tests::scene;
use hpc_tests::site::{CLUSTER, SETTLED, Site};
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";

#[test]
fn what_is_recorded_as_on_chain_is_in_a_block_once_and_without_an_endpoint_nothing_begins() -> Result<()> {
    scene::run("settled-in-a-block", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let key = key(1);
        let token = site.token(NODE, &public(&key), "1h")?;
        let agent = site.gateway().register(scene, &token, &key)?;
        ensure!(agent.send(&agent.draft(1)?)?.accepted());
        let end = wait::until("the report's end", SETTLED, || {
            let (epoch, ends) = site.ends(NODE)?;
            let end = ends.into_iter().find(|e| e.sequence == 1);
            Ok(end.map(|end| (epoch, end)))
        })?;
        let (epoch, end) = end;
        ensure!(end.ended == "on_chain", "{end:?}");
        let ledger = Ledger::read(&site.chain.rpc(), &site.contract)?;
        let name = Name {
            node: NODE.to_owned(),
            epoch,
            sequence: 1,
        };
        let [found] = ledger.of(&name) else {
            anyhow::bail!("not once in a block: {:?}", ledger.of(&name));
        };
        ensure!(
            found.refused.is_none() && Some(found.height) == end.height,
            "{found:?} {end:?}"
        );
        // A forged one is accepted by nobody: the contract has verified this one.
        let node = site.node(NODE)?;
        ensure!(node.pointer("/sequence") == Some(&Value::from(1)), "{node}");
        // Where nothing can be sent to, nothing is said to be sent.
        let said = site.provider_without_endpoints()?;
        ensure!(said.contains("chain.rpc"), "{said}");
        let mut outcome = Outcome::new(kind, "settled-in-a-block");
        outcome.set("state", site.state(NODE)?);
        outcome.save()
    })
}

#[test]
fn every_query_is_answered_and_every_change_of_a_nodes_state_is_told_by_an_event() -> Result<()> {
    scene::run("queries-and-events", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let key = key(1);
        let token = site.token(NODE, &public(&key), "1h")?;
        let agent = site.gateway().register(scene, &token, &key)?;
        let mut next = 1;
        let mut report = |state: &str| -> Result<()> {
            ensure!(agent.send(&agent.draft(next)?)?.accepted());
            next += 1;
            site.wait_state(NODE, state)
        };
        report("active")?;
        let of_owner = |verb: &str| {
            site.cli
                .run(&["tx", "hpc", verb, NODE, "--from", "owner", "--yes"])
        };
        of_owner("drain-node")?;
        report("drained")?;
        of_owner("resume-node")?;
        report("active")?;

        for words in [
            &["params"][..],
            &["config"],
            &["cluster", CLUSTER],
            &["clusters"],
            &["node", NODE],
            &["nodes", "--cluster-id", CLUSTER, "--state", "active"],
            &["aggregate", CLUSTER],
            &["jobs-at-risk", CLUSTER],
            &["anchors", CLUSTER],
        ] {
            let answer = site.cli.json(&[&["query", "hpc"], words].concat());
            let answer = answer.with_context(|| format!("{words:?}"))?;
            ensure!(answer.is_object() || answer.is_array(), "{words:?}: {answer}");
        }
        let told = wait::until("the events", SETTLED, || {
            let shown: Value =
                serde_json::from_str(&site.provider_run(&["node", "show", NODE, "-o", "json"])?)?;
            let events = shown["events"].as_array().cloned().unwrap_or_default();
            let text = |e: &Value, key: &str| e["event"][key].as_str().unwrap_or_default().to_owned();
            let arrows: Vec<String> = events
                .iter()
                .rev()
                .filter(|e| e["event"]["to"].is_string())
                .map(|e| format!("{} {}", text(e, "from"), text(e, "to")))
                .collect();
            Ok((arrows.last().map(String::as_str) == Some("drained active")).then_some(arrows))
        })?;
        ensure!(
            told.iter().any(|arrow| arrow == "pending active"),
            "the first report is not told: {told:?}"
        );
        let chained = told.windows(2).all(|pair| {
            let end = pair.first().and_then(|a| a.split(' ').nth(1));
            end.is_some() && end == pair.get(1).and_then(|b| b.split(' ').next())
        });
        ensure!(chained, "a change of state is not told: {told:?}");
        let mut outcome = Outcome::new(kind, "queries-and-events");
        outcome.set("arrows", told);
        outcome.save()
    })
}
