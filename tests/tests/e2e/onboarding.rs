//! From a key on disk to figures on chain, by the steps of the documentation.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use hpc_tests::outcome::Outcome;
use hpc_tests::scene;
use hpc_tests::site::Site;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";

/// A line of `/proc/meminfo` in KiB.
fn meminfo(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find(|l| l.starts_with(&format!("{name}:")))
        .context("no such line in /proc/meminfo")?;
    line.split_whitespace()
        .nth(1)
        .context("no figure")?
        .parse()
        .context("no number")
}

fn figure(node: &Value, pointer: &str) -> Result<u64> {
    node.pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("{pointer} is missing in {node}"))
}

#[test]
fn a_fresh_node_becomes_active_with_the_figures_of_its_kernel() -> Result<()> {
    scene::run("onboarding", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        agent.calm()?;
        let mut outcome = Outcome::new(kind, "onboarding");
        outcome.set("state after registration", site.state(NODE)?);

        let mut process = agent.start()?;
        site.wait_state(NODE, "active")?;
        let node = site.node(NODE)?;
        outcome.set("state after the first heartbeat", site.state(NODE)?);
        outcome.set("schedulable", node.get("active").cloned().unwrap_or_default());
        outcome.set(
            "health_status",
            node.get("health_status").cloned().unwrap_or_default(),
        );

        // Figures: totals are the kernel's, free memory is never more than the kernel says is available.
        let cores = u64::try_from(std::thread::available_parallelism()?.get())?;
        assert_eq!(figure(&node, "/totals/cpu_cores")?, cores);
        assert!(figure(&node, "/resources/cpu_cores")? <= cores);
        let gib = 1024 * 1024;
        let total = meminfo("MemTotal")?;
        assert_eq!(
            figure(&node, "/totals/memory_gb")?,
            ((total + gib / 2) / gib).max(1)
        );
        let free = figure(&node, "/resources/memory_gb")?;
        let available = meminfo("MemAvailable")? / gib;
        // Seconds lie between the two readings, and other programs run beside.
        assert!(
            free.abs_diff(available) <= 4,
            "on chain {free}, in /proc {available}"
        );

        // What people see.
        let text = site.cli.run(&["query", "hpc", "node", NODE])?;
        assert!(text.contains(&format!("node_id: {NODE}")), "{text}");
        assert!(text.contains("cluster_id: hpc-cluster-1"), "{text}");
        assert!(text.contains("state: active"), "{text}");
        agent.run(&["status", "--config", &agent.path("config.yaml")])?;

        // The next report follows; a clean stop says that the node is offline.
        let first = site.sequence(NODE)?;
        site.wait_sequence(NODE, first + 1)?;
        assert!(process.stop(Duration::from_secs(20))?.success());
        assert!(site.provider()?.stop(Duration::from_secs(40))?.success());
        outcome.save()
    })
}

#[test]
fn a_node_of_an_inactive_cluster_waits_and_becomes_active_with_it() -> Result<()> {
    scene::run("inactive-cluster", |scene, kind| {
        let mut site = Site::prepare(scene, kind)?;
        site.start_provider()?;
        let agent = site.agent(scene, NODE)?;
        let _process = agent.start()?;
        site.wait_sequence(NODE, 1)?;
        let mut outcome = Outcome::new(kind, "inactive-cluster");
        outcome.set("state before activation", site.state(NODE)?);
        site.activate()?;
        site.wait_state(NODE, "active")?;
        outcome.set("state after activation", site.state(NODE)?);
        outcome.save()
    })
}
