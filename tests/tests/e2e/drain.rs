//! A drain ordered on chain reaches the node, holds, and ends.

use anyhow::Result;
use hpc_tests::outcome::Outcome;
use hpc_tests::scene;
use hpc_tests::site::Site;

const NODE: &str = "node-hpc1-compute-042";

#[test]
fn a_drained_node_keeps_reporting_and_resumes() -> Result<()> {
    scene::run("drain", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        let _process = agent.start()?;
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
        outcome.save()
    })
}
