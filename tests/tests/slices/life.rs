//! A slice's life through real processes: slot, machine, SSH, release, proof.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::process::Process;
use hpc_tests::scene;
use hpc_tests::site::Site;
use serde_json::{Value, json};

use super::host::{ADDRESS, Slot, inside, know, left, policy, provision, remember, run, tenant, text};
use super::node::until;

const NODE: &str = "node-hpc1-compute-042";

fn submit(site: &Site, id: &str, kind: &str, params: &Value) -> Result<String> {
    let params = params.to_string();
    site.provider_run(&[
        "task",
        "submit",
        NODE,
        "--type",
        kind,
        "--task-id",
        id,
        "--params",
        &params,
    ])
}

/// Waits for a task's end; its result.
fn ended(site: &Site, id: &str) -> Result<Value> {
    let watched = site.provider_run(&["task", "watch", id, "--within", "400s"])?;
    println!("{id}:\n{watched}");
    let row: Value = serde_json::from_str(&site.provider_run(&["task", "show", id, "-o", "json"])?)?;
    ensure!(row["result"]["signature"].is_string(), "{row}");
    Ok(row["result"]["result"].clone())
}

fn slot(site: &Site) -> Result<Value> {
    let rows: Value = serde_json::from_str(&site.provider_run(&["slot", "list", "-o", "json"])?)?;
    Ok(rows[0].clone())
}

fn ssh(key: &Path, command: &str) -> String {
    let out = Command::new("ssh")
        .args([
            "-F",
            "/dev/null",
            "-T",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
        ])
        .args([
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "ConnectTimeout=10",
            "-i",
        ])
        .arg(key)
        .args(["-l", "alice", ADDRESS, command])
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// What the heartbeat says is given away, as this node would send it now.
fn holdings(tasks: &Path) -> Value {
    let text = fs::read_to_string(tasks.join("holdings.json")).unwrap_or_default();
    serde_json::from_str::<Value>(&text).map_or(Value::Null, |v| v["holdings"][0]["facts"].clone())
}

/// Every target that Prometheus is told of gives what it is there for.
fn targets(interface: &str) -> Result<()> {
    let files: Vec<_> = fs::read_dir("/run/telemetry")?.collect::<std::io::Result<_>>()?;
    let [file] = files.as_slice() else {
        anyhow::bail!("{files:?}");
    };
    let groups: Value = serde_json::from_str(&fs::read_to_string(file.path())?)?;
    let groups = groups.as_array().context("groups")?;
    let jobs: Vec<_> = groups.iter().map(|g| g["labels"]["job"].as_str()).collect();
    ensure!(jobs == [Some("slice"), Some("slice-libvirt")], "{groups:?}");
    ensure!(groups[1]["targets"] == json!([interface]), "{groups:?}");
    let wanted = [
        "node_",
        "libvirt_domain_info_cpu_time_seconds_total{domain=\"vm-1\"} ",
    ];
    for (group, wanted) in groups.iter().zip(wanted) {
        let place = group["targets"][0].as_str().context("a target")?;
        let path = group["labels"]["__metrics_path__"].as_str().unwrap_or("/metrics");
        let scheme = group["labels"]["__scheme__"].as_str().unwrap_or("http");
        let text = text(&run("curl", &["-fsS", &format!("{scheme}://{place}{path}")]));
        ensure!(
            text.lines().any(|l| l.starts_with(wanted)),
            "{place}{path}: {text}"
        );
        println!("{place}{path}: {} lines", text.lines().count());
    }
    let page = |name: &str| format!("http://{interface}/metrics/slices/{name}");
    let other = Command::new("curl").args(["-fsS", &page("vm-2")]).status()?;
    ensure!(!other.success(), "a machine that is none has figures");
    Ok(())
}

#[test]
fn a_slot_is_proven_clean_let_reached_by_ssh_and_proven_clean_again() {
    const NAME: &str = "life::a_slot_is_proven_clean_let_reached_by_ssh_and_proven_clean_again";
    inside(NAME, || {
        scene::run("slices", |scene, kind| life(scene, kind, NAME)).unwrap();
    });
}

fn life(scene: &hpc_tests::scene::Scene, kind: hpc_tests::chain::Kind, name: &str) -> Result<()> {
    let disk = Slot::new(name);
    disk.soil();
    let (key, public) = tenant();
    let site = Site::start(scene, kind)?;
    let agent = site.agent(scene, NODE)?;
    // libvirt's user has to pass through to the seed.
    let tasks = Path::new("/run/virtengine/tasks");
    know(tasks);
    fs::write("/run/virtengine/policy.yaml", policy(""))?;
    fs::set_permissions("/run/virtengine/policy.yaml", fs::Permissions::from_mode(0o644))?;
    let interface = format!("127.0.0.1:{}", hpc_tests::port::free()?);
    let section = format!(
        "api:\n  listen: {interface}\ntasks:\n  dir: {}\n  policy: /run/virtengine/policy.yaml\n",
        tasks.display()
    );
    agent.configure(&section)?;
    let _beating: Process = agent.start()?;
    site.wait_state(NODE, "active")?;
    let _acting: Process = agent.start_tasks()?;
    // What was issued before its record of tasks begins is refused.
    until("the record of tasks", Duration::from_secs(60), || {
        tasks.join("authority.json").exists()
    });

    // Candidate, approved, wiped with proof, free.
    let give = provision(&disk, &public);
    let refused = submit(&site, "too-early", "slice.vm_provision", &give)
        .unwrap_err()
        .to_string();
    ensure!(refused.contains("not on record"), "{refused}");
    site.provider_run(&["slot", "add", NODE, "--slot", &disk.spec.to_string()])?;
    let refused = submit(&site, "too-early", "slice.vm_provision", &give)
        .unwrap_err()
        .to_string();
    ensure!(refused.contains("candidate, not free"), "{refused}");
    let approved: Value =
        serde_json::from_str(&site.provider_run(&["slot", "approve", NODE, "slot-0", "-o", "json"])?)?;
    ended(&site, approved["task_id"].as_str().context("no task")?)?;
    ensure!(slot(&site)?["state"] == "free", "{}", slot(&site)?);
    ensure!(disk.is_zero(), "the first wipe left something");

    // Let.
    submit(&site, "provision", "slice.vm_provision", &give)?;
    let refused = submit(&site, "second", "slice.vm_provision", &give)
        .unwrap_err()
        .to_string();
    ensure!(refused.contains("a task works on slot slot-0"), "{refused}");
    let made = ended(&site, "provision")?;
    println!("provisioned: {made:#}");
    remember(tasks);
    let timings = made["timings"].as_object().context("no timings")?;
    ensure!(timings.len() == 17, "{timings:?}");
    ensure!(
        made["readiness"]["ssh"] == true && made["raw_vnc"] == false,
        "{made}"
    );
    ensure!(made["telemetry"]["exporter_series"].as_u64() >= Some(2), "{made}");
    ensure!(
        made["telemetry"]["statistics_series"].as_u64() >= Some(8),
        "{made}"
    );
    targets(&interface)?;
    ensure!(slot(&site)?["state"] == "leased", "{}", slot(&site)?);
    ensure!(
        ssh(&key, "cat /proc/sys/kernel/hostname; ls /var/lib/gpuaas").contains("slice-ready"),
        "no ready file"
    );
    let other = run(
        "ssh-keygen",
        &["-q", "-t", "ed25519", "-N", "", "-f", "/run/stranger"],
    );
    drop(other);
    let stranger = Command::new("ssh")
        .args([
            "-F",
            "/dev/null",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ])
        .args([
            "-o",
            "IdentitiesOnly=yes",
            "-i",
            "/run/stranger",
            "-l",
            "alice",
            ADDRESS,
            "true",
        ])
        .status()?;
    ensure!(!stranger.success(), "a stranger was let in");
    // Secrets are their owner's alone.
    for file in ["terminal_key", "known_hosts", "seed.iso"] {
        let mode = fs::metadata(tasks.join("slices/vm-1").join(file))?
            .permissions()
            .mode();
        ensure!(mode & 0o077 == 0, "{file}: {mode:o}");
    }
    ensure!(
        !tasks.join("slices/vm-1/user-data").exists(),
        "the documents of the seed are still there"
    );
    until("holdings are published", Duration::from_secs(20), || {
        holdings(tasks)["vcpus"] == 1
    });
    let inventory = agent.run(&["inventory", "--config", &agent.path("config.yaml"), "-o", "json"])?;
    let inventory: Value = serde_json::from_str(&inventory)?;
    ensure!(
        inventory["capacity"]["cpu_cores_allocated"] == 1,
        "{}",
        inventory["capacity"]
    );

    // Taken down without a wipe: quarantined, and nobody's.
    let end =
        json!({"allocation_id": "alloc-1", "vm_name": "vm-1", "graceful_timeout_seconds": 60, "wipe": false});
    submit(&site, "release-dirty", "slice.vm_release", &end)?;
    let gone = ended(&site, "release-dirty")?;
    ensure!(
        gone["slots_free"] == false && gone["cleanup"]["domain_gone"] == true,
        "{gone}"
    );
    ensure!(gone["hard_stopped"] == false, "{gone}");
    ensure!(slot(&site)?["state"] == "quarantined", "{}", slot(&site)?);
    ensure!(!disk.is_zero(), "it was not to be wiped");
    until("the slot counts as unproven", Duration::from_secs(20), || {
        holdings(tasks)["unproven_slots"] == 1
    });
    let refused = submit(&site, "third", "slice.vm_provision", &give)
        .unwrap_err()
        .to_string();
    ensure!(refused.contains("vm-1 is the machine on slot"), "{refused}");

    // With one: proven clean.
    let end = json!({"allocation_id": "alloc-1", "vm_name": "vm-1"});
    submit(&site, "release", "slice.vm_release", &end)?;
    let gone = ended(&site, "release")?;
    println!("released: {gone:#}");
    ensure!(
        gone["slots_free"] == true && gone["cleanup"]["wiped"][0]["zero"] == true,
        "{gone}"
    );
    ensure!(slot(&site)?["state"] == "free", "{}", slot(&site)?);
    ensure!(disk.is_zero(), "the wipe left something");
    let left = left(tasks);
    ensure!(left.is_empty(), "{left:?}");
    let ports = text(&run("ovs-vsctl", &["list-ports", super::host::BRIDGE]));
    ensure!(!ports.contains("vnet"), "{ports}");
    let log = site
        .provider_run(&["audit", "list", "-o", "json"])
        .unwrap_or_default();
    ensure!(log.matches("slot.settle").count() >= 4 || log.is_empty(), "{log}");
    site.provider_run(&["slot", "retire", NODE, "slot-0"])?;
    ensure!(slot(&site)?["state"] == "retired", "{}", slot(&site)?);
    Ok(())
}
