//! An agent in another language, written from `docs/protocol.md` alone, is as good as ours.

use anyhow::Result;
use hpc_tests::chain::CHAIN_ID;
use hpc_tests::outcome::Outcome;
use hpc_tests::registry::Registry;
use hpc_tests::{node, scene};

#[test]
fn an_agent_written_from_the_documentation_gets_its_report_accepted() -> Result<()> {
    scene::run("foreign-agent", |scene, kind| {
        let registry = Registry::deploy(scene, kind)?;
        let mut script = node::script("agent", "agent.mjs")?;
        script
            .env("RPC", registry.chain.rpc())
            .env("CHAIN_ID", CHAIN_ID)
            .env("CONTRACT", &registry.contract);
        script.env("MNEMONIC_FILE", registry.cli.words("owner"));
        script
            .env("CLUSTER_ID", "hpc-cluster-1")
            .env("NODE_ID", "node-hpc1-compute-042");
        let node = node::run(&mut script)?;
        let mut outcome = Outcome::new(kind, "foreign-agent");
        for field in [
            "state",
            "active",
            "health_status",
            "sequence",
            "resources",
            "totals",
        ] {
            outcome.set(field, node.get(field).cloned().unwrap_or_default());
        }
        assert_eq!(node.get("state"), Some(&"active".into()), "{node}");
        outcome.save()
    })
}
