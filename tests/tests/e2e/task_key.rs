//! A cluster's task key is replaced, twice, while a node is away: the chain has the new one, the node follows by what the
//! old ones signed, and tasks and orders go on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::scene;
use hpc_tests::site::{CLUSTER, SETTLED, Site};
use hpc_tests::wait;
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";
/// Has its token before the rotations, and registers after them.
const LATE: &str = "node-hpc1-compute-043";

fn rotate(site: &Site) -> Result<Value> {
    let said = site.provider_run(&["keys", "rotate-task", "--cluster-id", CLUSTER, "-o", "json"])?;
    Ok(serde_json::from_str(&said)?)
}

fn on_chain(site: &Site) -> Result<Value> {
    let cluster = site.cli.json(&["query", "hpc", "cluster", CLUSTER])?;
    cluster
        .get("task_public_key")
        .cloned()
        .context("the chain has no task key")
}

fn probe(site: &Site, node: &str, id: &str) -> Result<()> {
    let words = [
        "task",
        "submit",
        node,
        "--type",
        "diag.health_probe",
        "--task-id",
        id,
    ];
    site.provider_run(&words)?;
    site.provider_run(&["task", "watch", id, "--within", "60s"])
        .map(drop)
}

/// The kernel's tree as it is here, on a board of another number.
fn other_machine(sys: &Path) -> Result<()> {
    let class = sys.join("class");
    fs::create_dir_all(class.join("dmi/id"))?;
    fs::write(
        class.join("dmi/id/product_uuid"),
        "6f1c9a52-0d5e-4e0b-9d2f-3b1a7c44e043\n",
    )?;
    for (here, there) in [("/sys", sys), ("/sys/class", &class)] {
        for entry in fs::read_dir(here)? {
            let entry = entry?;
            let link = there.join(entry.file_name());
            if !link.exists() {
                symlink(entry.path(), link)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_node_that_was_away_during_two_rotations_takes_tasks_by_the_newest_key() -> Result<()> {
    scene::run("task-key", |scene, kind| {
        let mut site = Site::start(scene, kind)?;
        let agent = site.agent(scene, NODE)?;
        agent.configure(&format!("tasks:\n  dir: {}\n", agent.path("tasks")))?;
        let beating = agent.start()?;
        site.wait_state(NODE, "active")?;
        let acting = agent.start_tasks()?;
        probe(&site, NODE, "by-the-first")?;
        drop(acting);
        drop(beating);
        // A token that pins the first key, kept until there is a third.
        let late = site.agent_with(scene, LATE, "")?;
        let sys = scene.folder("sys")?;
        other_machine(&sys)?;
        let config = late.path("config.yaml");
        let roots = format!("agent:\n  roots: {{sys: {}}}\n", sys.display());
        fs::write(&config, fs::read_to_string(&config)?.replace("agent:\n", &roots))?;
        let public = fs::read_to_string(late.path("keys/agent.pub"))?;
        late.write_token("token", &site.token(LATE, public.trim(), "1h")?)?;

        let first = rotate(&site)?;
        ensure!(on_chain(&site)? == first["new_key"], "{first}");
        let second = rotate(&site)?;
        ensure!(first["new_key"] == second["old_key"], "{first} {second}");
        ensure!(on_chain(&site)? == second["new_key"], "{second}");
        ensure!(first["tx"].is_string() && second["tx"].is_string(), "{second}");
        // The gateway goes on with it, and does after a restart.
        let _beating = agent.start()?;
        let _acting = agent.start_tasks()?;
        probe(&site, NODE, "by-the-third")?;
        site.kill_provider()?;
        site.start_provider()?;
        probe(&site, NODE, "after-a-restart")?;
        let pinned = fs::read_to_string(agent.path("tasks/authority.json"))?;
        let pinned: Value = serde_json::from_str(&pinned)?;
        ensure!(pinned["task_key"] == second["new_key"], "{pinned}");
        // Whoever registers with the old token ends with the newest key as well, by the same chain of words.
        late.run(&["register", "--config", &late.path("config.yaml")])?;
        let registered = fs::read_to_string(late.path("state/registration.json"))?;
        let registered: Value = serde_json::from_str(&registered)?;
        ensure!(registered["task_public_key"] == second["new_key"], "{registered}");
        late.configure(&format!("tasks:\n  dir: {}\n", late.path("tasks")))?;
        let _late_beating = late.start()?;
        site.wait_state(LATE, "active")?;
        let _late_acting = late.start_tasks()?;
        probe(&site, LATE, "by-an-old-token")?;
        // Orders come with heartbeats, to the other process.
        let order = [
            "command",
            "send",
            NODE,
            "--type",
            "run_diagnostic",
            "--parameters",
            r#"{"name":"health"}"#,
        ];
        site.provider_run(&order)?;
        let ended = wait::until("the order", SETTLED, || {
            let orders = site.orders(NODE)?;
            Ok(orders
                .first()
                .filter(|o| ["done", "failed", "refused"].contains(&o.1.as_str()))
                .cloned())
        })?;
        ensure!(ended.1 == "done", "{ended:?}");
        let log = site.provider_run(&["audit", "list", "-o", "json"])?;
        ensure!(log.matches("task_key.rotate").count() == 2, "{log}");
        let next = site.home().join(format!("keys/tasks/{CLUSTER}.key.next"));
        ensure!(!next.exists(), "the last key was not put in its place");
        let mut outcome = Outcome::new(kind, "task-key");
        outcome.set("rotations", 2);
        outcome.save()
    })
}

#[test]
fn a_rotation_that_is_broken_off_anywhere_is_gone_on_with_and_begins_no_other() -> Result<()> {
    scene::run("task-key-broken-off", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let next = site.home().join(format!("keys/tasks/{CLUSTER}.key.next"));
        site.provider_run(&["keys", "task", "--cluster-id", CLUSTER])?;
        rotate(&site)?;
        let mut keys = vec![on_chain(&site)?];
        for (step, is_on_record) in [
            ("task_key.drawn", false),
            ("task_key.on_chain", false),
            ("task_key.recorded", true),
        ] {
            let words = ["keys", "rotate-task", "--cluster-id", CLUSTER];
            site.provider_dies_at(step, &words)?;
            ensure!(next.exists(), "killed at {step}: the key that was drawn is gone");
            let ended = rotate(&site)?;
            let now = on_chain(&site)?;
            ensure!(keys.last() == ended.get("old_key"), "{step}: {ended}");
            ensure!(Some(&now) == ended.get("new_key"), "{step}: {ended}");
            // One that is on record was done for everybody else.
            ensure!(
                ended["resumed"].as_bool().unwrap_or(false) == is_on_record,
                "{step}: {ended}"
            );
            ensure!(
                ended["tx"].is_string() == (step == "task_key.drawn"),
                "{step}: {ended}"
            );
            ensure!(!keys.contains(&now) && !next.exists(), "{step}: {ended}");
            keys.push(now);
        }
        // Broken off twice: what goes on with it is broken off as well.
        let words = ["keys", "rotate-task", "--cluster-id", CLUSTER];
        site.provider_dies_at("task_key.recorded", &words)?;
        let drawn = on_chain(&site)?;
        site.provider_dies_at("task_key.resumed", &words)?;
        let ended = rotate(&site)?;
        ensure!(
            ended["resumed"] == true && Some(&drawn) == ended.get("new_key"),
            "{ended}"
        );
        keys.push(drawn);
        // Nothing was left over: this one is another.
        let fresh = rotate(&site)?;
        ensure!(
            keys.last() == fresh.get("old_key") && fresh["tx"].is_string(),
            "{fresh}"
        );
        let log = site.provider_run(&["audit", "list", "-o", "json"])?;
        let rows: Vec<Value> = serde_json::from_str(&log)?;
        let rotations: Vec<&Value> = rows.iter().filter(|r| r["action"] == "task_key.rotate").collect();
        ensure!(
            rotations.len() == 9 && rotations.iter().all(|r| r["result"] == "done"),
            "{log}"
        );
        let mut outcome = Outcome::new(kind, "task-key-broken-off");
        outcome.set("rotations", keys.len());
        outcome.save()
    })
}
