//! Tasks through real processes: submitted at the provider, carried out on the node, on record by signed results,
//! whatever is killed meanwhile.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::process::Process;
use hpc_tests::scene;
use hpc_tests::site::{SETTLED, Site};
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";

fn submit(site: &Site, id: &str) -> Result<String> {
    site.provider_run(&[
        "task",
        "submit",
        NODE,
        "--type",
        "diag.health_probe",
        "--task-id",
        id,
    ])
}

fn tasks(site: &Site) -> Result<Vec<Value>> {
    let text = site.provider_run(&["task", "list", "--limit", "100000", "-o", "json"])?;
    serde_json::from_str(&text).context("task list")
}

/// The processes below the task agent: the one that speaks with the gateway.
fn links(process: &Process) -> Result<Vec<u32>> {
    let pid = process.id();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    Ok(text
        .split_ascii_whitespace()
        .filter_map(|p| p.parse().ok())
        .collect())
}

fn kill(pid: u32) {
    // Gone meanwhile: as good as killed.
    drop(
        std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status(),
    );
}

#[test]
fn tasks_end_once_by_signed_results_whatever_is_killed_and_the_heartbeat_goes_on() -> Result<()> {
    scene::run("tasks", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        agent.configure(&format!("tasks:\n  dir: {}\n", agent.path("tasks")))?;
        let mut beating = agent.start()?;
        site.wait_state(NODE, "active")?;
        let mut outcome = Outcome::new(kind, "tasks");
        let mut acting = agent.start_tasks()?;
        submit(&site, "probe-first")?;
        site.provider_run(&["task", "watch", "probe-first", "--within", "60s"])?;

        let runs: u64 = std::env::var("HPC_TEST_RUNS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(5);
        let count = runs.saturating_mul(5).clamp(10, 500);
        let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
        for n in 0..count {
            // A node has 256 tasks at most that are not over: with more to come, some end first.
            let id = format!("probe-{n}");
            wait::until("room for a task", SETTLED, || match submit(&site, &id) {
                Err(e) if format!("{e:#}").contains("has 256 tasks") => Ok(None),
                done => done.map(Some),
            })?;
            // xorshift: the same story at each run.
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            match dice % 13 {
                0 => {
                    acting.kill()?;
                    acting = agent.start_tasks()?;
                }
                1 => links(&acting)?.into_iter().for_each(kill),
                2 if n % 5 == 0 => {
                    site.kill_provider()?;
                    site.start_provider()?;
                }
                _ => {}
            }
        }
        let ended = wait::until("all tasks to end", SETTLED.max(Duration::from_secs(180)), || {
            let rows = tasks(&site)?;
            let open = |r: &Value| !matches!(r["state"].as_str(), Some("completed" | "failed" | "expired"));
            Ok((!rows.iter().any(open)).then_some(rows))
        })?;
        ensure!(
            u64::try_from(ended.len())? == count + 1,
            "{} tasks are on record",
            ended.len()
        );
        for row in &ended {
            ensure!(row["state"] == "completed", "{row}");
            ensure!(
                row["result"]["signature"].is_string() && row["result_key"].is_string(),
                "{row}"
            );
        }
        outcome.set("tasks", "all completed");
        // Nothing of it touched the heartbeat, and its end does not touch tasks.
        beating.check_alive()?;
        beating.kill()?;
        submit(&site, "probe-last")?;
        site.provider_run(&["task", "watch", "probe-last", "--within", "60s"])?;
        let list = agent.run(&[
            "tasks",
            "list",
            "--config",
            &agent.path("config.yaml"),
            "-o",
            "json",
        ])?;
        ensure!(list.contains("probe-last"), "{list}");
        outcome.save()
    })
}
