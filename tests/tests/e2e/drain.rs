//! A drain ordered on chain reaches the node, holds, and ends; other orders of the provider are carried out and
//! acknowledged.

use anyhow::{Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::scene;
use hpc_tests::site::{SETTLED, Site};
use hpc_tests::wait;

const NODE: &str = "node-hpc1-compute-042";

#[test]
fn a_drained_node_keeps_reporting_and_resumes() -> Result<()> {
    scene::run("drain", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        let mut process = agent.start()?;
        site.wait_state(NODE, "active")?;
        let mut outcome = Outcome::new(kind, "drain");

        site.cli
            .run(&["tx", "hpc", "drain-node", NODE, "--from", "owner", "--yes"])?;
        let before = site.sequence(NODE)?;
        // Nothing runs on the node, so that the next report after the order finds it drained.
        site.wait_state(NODE, "drained")?;
        site.wait_sequence(NODE, before + 1)?;
        let node = site.node(NODE)?;
        outcome.set("state while drained", site.state(NODE)?);
        outcome.set(
            "schedulable while drained",
            node.get("active").cloned().unwrap_or_default(),
        );

        site.cli
            .run(&["tx", "hpc", "resume-node", NODE, "--from", "owner", "--yes"])?;
        site.wait_state(NODE, "active")?;
        outcome.set("state after resume", site.state(NODE)?);

        let health = r#"{"name":"health"}"#;
        for (kind, parameters) in [
            ("run_diagnostic", health),
            ("shutdown", r#"{"reason":"moving racks"}"#),
        ] {
            site.provider_run(&[
                "command",
                "send",
                NODE,
                "--type",
                kind,
                "--parameters",
                parameters,
            ])?;
        }
        // The last word of an agent that was ordered to stop.
        let ended = wait::until("all orders to be acknowledged", SETTLED, || {
            let orders = site.orders(NODE)?;
            let open = |state: &str| matches!(state, "pending" | "accepted");
            Ok((orders.len() == 4 && !orders.iter().any(|o| open(&o.1))).then_some(orders))
        })?;
        let mut said: Vec<String> = ended
            .iter()
            .map(|(kind, state, _)| format!("{kind} {state}"))
            .collect();
        said.sort_unstable();
        outcome.set("orders", said.join(", "));
        let gone = wait::until("the agent to end", SETTLED, || {
            Ok(process.check_alive().is_err().then_some(()))
        });
        gone?;
        ensure!(
            process
                .log()
                .contains("the provider has ordered this agent to stop")
        );
        outcome.save()
    })
}
