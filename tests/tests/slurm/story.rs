//! The whole way: jobs and drains of a real Slurm as heartbeats and on-chain states tell them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::process::Process;
use hpc_tests::scene;
use hpc_tests::site::Site;
use hpc_tests::slurm::Slurm;
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";
/// Jobs are looked at every 30 s at most, and reported with the next heartbeat.
const TOLD: Duration = Duration::from_secs(120);

/// The payloads of all heartbeats that the agent has signed and sent, from its log.
fn heartbeats(agent: &Process) -> Vec<Value> {
    let log = agent.log();
    let payloads = log
        .lines()
        .filter_map(|l| l.split_once("heartbeat payload ").map(|(_, rest)| rest));
    payloads
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect()
}

fn word<'a>(heartbeat: &'a Value, pointer: &str) -> &'a str {
    heartbeat
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// Waits for a heartbeat, sent after those seen before, that says so.
fn told(agent: &Process, what: &str, says: impl Fn(&Value) -> bool) -> Result<Value> {
    let seen = heartbeats(agent).len();
    wait::until(what, TOLD, || {
        Ok(heartbeats(agent).into_iter().skip(seen).find(|h| says(h)))
    })
    .with_context(|| format!("the last one: {:?}", heartbeats(agent).last()))
}

/// Waits until the chain has the node so.
fn on_chain(site: &Site, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let node = wait::until(what, TOLD, || site.node(NODE).map(|n| is(&n).then_some(n)));
    node.with_context(|| format!("on chain: {:?}", site.node(NODE)))
}

fn state<'a>(is: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |node| word(node, "/state") == is
}

fn running(n: u64) -> impl Fn(&Value) -> bool {
    move |h| number(h, "/jobs/running_count") == Some(n)
}

#[test]
fn heartbeats_and_chain_tell_of_jobs_and_drains_to_drained_and_back() -> Result<()> {
    scene::run("slurm", |scene, kind| {
        let dir = tempfile::tempdir()?;
        let slurm = Slurm::start(dir.path())?;
        let site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        agent.configure(&format!(
            "  capacity_interval: 10s\n  jobs_interval: 30s\nslurm:\n  conf: {}\nlogging:\n  level: debug\n",
            slurm.conf().display()
        ))?;
        let process = agent.start()?;
        on_chain(&site, "an active node", state("active"))?;

        // Submitted, run, failed, cancelled.
        let runs = slurm.submit("sleep 900", &[])?;
        slurm.submit("exit 3", &[])?;
        slurm.submit("true", &[])?;
        let cancelled = slurm.submit("sleep 900", &["--begin=now+1hour"])?;
        slurm.cancel(cancelled)?;
        let told_of_jobs = told(
            &process,
            "a heartbeat of one job running, one done, one failed",
            |h| {
                running(1)(h)
                    && number(h, "/jobs/completed_24h") == Some(1)
                    && number(h, "/jobs/failed_24h") == Some(1)
            },
        )?;
        let id = format!("slurm-{runs}");
        ensure!(
            told_of_jobs.pointer("/jobs/active_job_ids/0") == Some(&Value::from(id)),
            "{told_of_jobs}"
        );
        told(&process, "a heartbeat of one core in use", |h| {
            word(h, "/health/slurm_state") == "mixed" && number(h, "/capacity/cpu_cores_available") == Some(1)
        })?;
        on_chain(&site, "one core left and a job", |n| {
            number(n, "/resources/cpu_cores") == Some(1)
                && n.pointer("/jobs/running") == Some(&Value::Bool(true))
                && state("active")(n)
        })?;

        // Drained by the site's administrator while it runs: the agent's word.
        slurm.update(&["state=drain", "reason=new disk"])?;
        told(&process, "a heartbeat of the drain", |h| {
            word(h, "/health/status") == "draining"
                && word(h, "/health/slurm_state") == "drain"
                && running(1)(h)
        })?;
        let node = on_chain(&site, "a draining node", state("draining"))?;
        ensure!(
            node.pointer("/drain").is_none_or(Value::is_null),
            "no order of the provider: {node}"
        );
        slurm.cancel(runs)?;
        told(&process, "a heartbeat of an empty node", running(0))?;
        on_chain(&site, "a drained node", state("drained"))?;
        slurm.update(&["state=resume"])?;
        told(&process, "a heartbeat of a node in service", |h| {
            word(h, "/health/status") != "draining" && word(h, "/health/slurm_state") == "idle"
        })?;
        on_chain(&site, "an active node", state("active"))?;

        // Drained by the chain while a job runs: the agent tells Slurm, and reports what it measures.
        let runs = slurm.submit("sleep 900", &[])?;
        told(&process, "a heartbeat of the second job", running(1))?;
        let chain = |message: &str, more: &[&str]| -> Result<()> {
            let mut arguments = vec!["tx", "hpc", message, NODE, "--from", "owner", "--yes"];
            arguments.extend(more);
            site.cli.run(&arguments).map(drop)
        };
        chain("drain-node", &["--reason", "new memory"])?;
        on_chain(&site, "a draining node", state("draining"))?;
        let drained = slurm.wait_node("Slurm's drain", |n| n.state_text.contains("DRAIN"))?;
        let reason = drained.reason.unwrap_or_default();
        ensure!(reason.starts_with("virtengine order: new memory"), "{reason}");
        told(&process, "a heartbeat of the ordered drain", |h| {
            word(h, "/health/slurm_state") == "drain"
                && word(h, "/health/status") != "draining"
                && running(1)(h)
        })?;
        ensure!(site.state(NODE)? == "draining", "a job runs");
        slurm.cancel(runs)?;
        on_chain(&site, "a drained node", state("drained"))?;
        chain("resume-node", &[])?;
        slurm.wait_node("Slurm's resume", |n| n.state_text == "IDLE")?;
        let node = on_chain(&site, "an active node", |n| {
            state("active")(n) && n.pointer("/active") == Some(&Value::Bool(true))
        })?;
        ensure!(
            node.pointer("/jobs/running") == Some(&Value::Bool(false)),
            "{node}"
        );
        let orders = wait::until("both orders acknowledged", TOLD, || {
            let orders = site.orders(NODE)?;
            Ok(orders.iter().all(|o| o.1 == "done").then_some(orders))
        })?;
        let said: Vec<&str> = orders.iter().map(|o| o.2.as_str()).collect();
        ensure!(said.contains(&"Slurm drains the node"), "{said:?}");
        ensure!(said.contains(&"Slurm gives the node jobs again"), "{said:?}");
        Ok(())
    })
}
