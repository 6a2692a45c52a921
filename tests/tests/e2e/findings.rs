//! What the task domain finds wrong with its node, provoked on the disk and seen in the payload of heartbeats and in
//! `status` until it is mended: three processes that know of each other by files alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::agent::Agent;
use hpc_tests::process::Process;
use hpc_tests::scene;
use hpc_tests::site::Site;
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";
/// A heartbeat every 10 s at most; a change of health goes out before.
const TOLD: Duration = Duration::from_secs(60);

/// The kernel's tree as it is here, but for a fabric of one port.
fn tree(sys: &Path) -> Result<()> {
    let class = sys.join("class");
    fs::create_dir_all(class.join("infiniband/mlx5_0/ports/1"))?;
    for (here, there) in [("/sys", sys), ("/sys/class", &class)] {
        for entry in fs::read_dir(here)? {
            let entry = entry?;
            let link = there.join(entry.file_name());
            if !link.exists() {
                symlink(entry.path(), link)?;
            }
        }
    }
    port(sys, "1: DOWN")
}

fn port(sys: &Path, state: &str) -> Result<()> {
    Ok(fs::write(
        sys.join("class/infiniband/mlx5_0/ports/1/state"),
        state,
    )?)
}

/// Health in the last payload that was signed and sent: state and reason.
fn payload(beating: &Process) -> Option<(String, String)> {
    let log = beating.log();
    let last = log
        .lines()
        .rev()
        .find_map(|l| l.split_once("heartbeat payload "))?
        .1;
    let sent: Value = serde_json::from_str(last).ok()?;
    let word = |name: &str| {
        sent.pointer(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Some((word("/health/status"), word("/health/last_error_message")))
}

/// `status`: whether all is well, and what it finds.
fn status(agent: &Agent) -> Result<(bool, String)> {
    let said = agent.run_whatever(&["status", "--config", &agent.path("config.yaml"), "-o", "json"])?;
    let said: Value = serde_json::from_str(&said)?;
    let healthy = said
        .get("healthy")
        .and_then(Value::as_bool)
        .context("no verdict")?;
    // Nothing found is no member.
    let status = said.get("status").context("no status")?;
    let findings = status.get("findings").unwrap_or(&Value::Null);
    Ok((healthy, findings.to_string()))
}

/// Waits until payload and `status` tell of it.
fn told(agent: &Agent, beating: &Process, code: &str, word: &str) -> Result<()> {
    wait::until(code, TOLD, || {
        let sent = payload(beating).context("no payload")?;
        let (healthy, findings) = status(agent)?;
        ensure!(
            sent.0 == "degraded" && sent.1.contains(word),
            "the payload says {sent:?}"
        );
        ensure!(
            !healthy && findings.contains(&format!("{code}: ")) && findings.contains(word),
            "{findings}"
        );
        Ok(Some(()))
    })
}

/// Waits until neither tells of it.
fn mended(agent: &Agent, beating: &Process, code: &str, word: &str) -> Result<()> {
    wait::until(&format!("the end of {code}"), TOLD, || {
        let sent = payload(beating).context("no payload")?;
        let (_, findings) = status(agent)?;
        ensure!(
            !sent.1.contains(word) && !findings.contains(code),
            "{sent:?}, {findings}"
        );
        Ok(Some(()))
    })
}

#[test]
fn what_the_task_domain_finds_is_in_payload_and_status_until_it_is_mended() -> Result<()> {
    scene::run("findings", |scene, kind| {
        let mut site = Site::prepare(scene, kind)?;
        site.activate()?;
        site.set("TASKS__PROBE_EVERY", "60s");
        site.start_provider()?;
        let agent = site.agent(scene, NODE)?;
        let (sys, tasks) = (scene.folder("sys")?, scene.folder("tasks")?);
        tree(&sys)?;
        let config = agent.path("config.yaml");
        let text = fs::read_to_string(&config)?.replace(
            "agent:\n",
            &format!("agent:\n  roots: {{sys: {}}}\n", sys.display()),
        );
        let more = format!("tasks:\n  dir: {}\nlogging:\n  level: debug\n", tasks.display());
        fs::write(&config, text + &more)?;
        let beating = agent.start()?;
        site.wait_state(NODE, "active")?;
        let mut acting = agent.start_tasks()?;
        mended(&agent, &beating, "task_", "task")?;

        // A probe of the host that failed, by the gateway's schedule: nobody has submitted it.
        let turn = wait::until("the node's turn", Duration::from_secs(90), || {
            let said = site.provider_run(&["task", "list", "-o", "json"])?;
            let rows: Vec<Value> = serde_json::from_str(&said)?;
            Ok(rows.into_iter().find(|r| r["state"] == "completed"))
        })?;
        ensure!(
            turn["type"] == "diag.health_probe" && turn["submitted_by"] == "virtengine-provider",
            "{turn}"
        );
        ensure!(
            turn["result"]["signature"].is_string() && turn["result"]["result"]["status"] == "fail",
            "{turn}"
        );
        told(&agent, &beating, "task_probe_failed", "mlx5_0/1 down")?;
        // And by the provider's order, until one passes.
        let probe = |id: &str| {
            let order = [
                "task",
                "submit",
                NODE,
                "--type",
                "diag.health_probe",
                "--task-id",
                id,
            ];
            site.provider_run(&order)?;
            site.provider_run(&["task", "watch", id, "--within", "60s"])
        };
        probe("probe-1")?;
        told(&agent, &beating, "task_probe_failed", "mlx5_0/1 down")?;
        port(&sys, "4: ACTIVE")?;
        probe("probe-2")?;
        mended(&agent, &beating, "task_probe_failed", "mlx5_0/1")?;

        // A journal that cannot be read; and an overlay of a machine that no journal knows (specification 002).
        let (journal, machine) = (tasks.join("journal/gone-1.log"), tasks.join("machines/vm-lost"));
        acting.kill()?;
        fs::write(&journal, "damaged\nfor\ngood\n")?;
        acting = agent.start_tasks()?;
        told(&agent, &beating, "task_journal_damaged", "gone-1")?;
        acting.kill()?;
        fs::remove_file(&journal)?;
        fs::create_dir(&machine)?;
        fs::write(machine.join("overlay.qcow2"), "QFI")?;
        acting = agent.start_tasks()?;
        told(&agent, &beating, "task_leftovers", "vm-lost")?;
        // The second look sets it aside, and goes on telling of it.
        wait::until("the overlay to be set aside", TOLD, || {
            Ok((!machine.exists()).then_some(()))
        })?;
        told(&agent, &beating, "task_leftovers", "vm-lost")?;
        acting.kill()?;
        fs::remove_dir_all(tasks.join("quarantine"))?;
        let _acting = agent.start_tasks()?;
        mended(&agent, &beating, "task_", "vm-lost")
    })
}
