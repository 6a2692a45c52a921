//! How a task ended, shown to somebody who trusts the chain and not the provider; and nothing of it can be changed.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::outcome::Outcome;
use hpc_tests::raw::{key, public};
use hpc_tests::scene;
use hpc_tests::site::{CLUSTER, SETTLED, Site};
use hpc_tests::wait;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const NODE: &str = "node-hpc1-compute-042";

/// What somebody could change to make it say something else.
const PLACES: [&str; 17] = [
    "/cluster_id",
    "/node_id",
    "/contract",
    "/chain_id",
    "/task/task_id",
    "/task/task_type",
    "/task/nonce",
    "/task/params",
    "/result/outcome",
    "/result/result",
    "/result/task_hash",
    "/result/signature",
    "/result_key",
    "/rows/0/detail",
    "/rows/0/target",
    "/rows/0/digest",
    "/rows/0/at",
];

fn changed(place: &str, value: &Value) -> Value {
    match (place, value) {
        ("/task/params" | "/result/result", _) => json!({"checks": ["gpu"]}),
        ("/result/outcome", _) => json!("failed"),
        ("/result_key", _) => json!("11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="),
        (_, Value::Number(n)) => json!(n.as_u64().unwrap_or(0) + 1),
        (_, Value::String(text)) if place.ends_with("nonce") || place.ends_with("signature") => {
            // Another first byte; the length stays.
            let first = if text.starts_with('A') { "B" } else { "A" };
            json!(format!("{first}{}", text.get(1..).unwrap_or_default()))
        }
        (_, Value::String(text)) => json!(format!("{text}0")),
        (_, other) => other.clone(),
    }
}

#[test]
fn a_task_s_result_is_proven_by_an_anchor_and_every_change_of_the_proof_is_refused() -> Result<()> {
    scene::run("task-proof", |scene, kind| {
        let mut site = Site::prepare(scene, kind)?;
        site.set("AUDIT__ANCHOR_INTERVAL", "1s");
        site.activate()?;
        site.start_provider()?;
        let agent = site.agent(scene, NODE)?;
        agent.configure(&format!("tasks:\n  dir: {}\n", agent.path("tasks")))?;
        let _beating = agent.start()?;
        site.wait_state(NODE, "active")?;
        let _acting = agent.start_tasks()?;
        let words = [
            "task",
            "submit",
            NODE,
            "--type",
            "slice.topology_discover",
            "--task-id",
            "look-1",
        ];
        site.provider_run(&words)?;
        site.provider_run(&["task", "watch", "look-1", "--within", "60s"])?;
        let file = scene.path("task.json");
        let name = file.display().to_string();
        wait::until("a proof", SETTLED, || {
            Ok(site
                .provider_run(&["task", "prove", "look-1", "--file", &name])
                .ok())
        })?;
        let found = site.cli.json(&["query", "hpc", "proof", &name])?;
        ensure!(
            found["outcome"] == "completed" && found["task_id"] == "look-1",
            "{found}"
        );
        ensure!(
            found["proven"].as_array().is_some_and(|p| p.len() == 4),
            "{found}"
        );
        ensure!(found["not_proven"] == json!([]), "{found}");
        let digest = found["anchor"]["digest"].as_str().context("digest")?;
        let anchors = [
            "query",
            "hpc",
            "anchors",
            CLUSTER,
            "--kind",
            "audit_log",
            "--digest",
            digest,
        ];
        let anchored = site.cli.json(&anchors)?;
        ensure!(anchored["height"] == found["anchor"]["height"], "{anchored}");

        let proof: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        let spoilt = scene.path("spoilt.json");
        let spoilt_name = spoilt.display().to_string();
        let refused = |proof: &Value| -> Result<bool> {
            fs::write(&spoilt, proof.to_string())?;
            let said = site.cli.fails(&["query", "hpc", "proof", &spoilt_name]);
            Ok(said.is_ok_and(|said| said.contains("proof_")))
        };
        for place in PLACES {
            let mut other = proof.clone();
            let value = other.pointer_mut(place).context(place)?;
            *value = changed(place, value);
            ensure!(refused(&other)?, "{place} was changed, and not refused");
        }
        // A log that was cut before its anchor.
        let mut other = proof.clone();
        let rows = other["rows"].as_array_mut().context("rows")?;
        if rows.len() > 1 {
            rows.pop();
            ensure!(refused(&other)?, "a log without its anchored end");
        }
        other["rows"] = json!([]);
        ensure!(refused(&other)?, "no log at all");
        let mut outcome = Outcome::new(kind, "task-proof");
        outcome.set("proven", found["proven"].as_array().map_or(0, Vec::len));
        outcome.save()
    })
}

/// A slot, and what its node has seen of it after its wipe.
fn wiped() -> (Value, Value) {
    let slot = json!({
        "slot_id": "slot-0", "slot_index": 0, "pci_address": "0000:3b:00.0", "nvme_device": "/dev/disk/by-id/nvme-0",
        "vcpu_count": 2, "memory_mib": 512, "mac_address": "52:54:00:00:00:01", "private_ip": "10.77.0.16",
    });
    let cleanup = json!({
        "domain_gone": true, "leases_gone": true, "dhcp_gone": true, "telemetry_gone": true, "files_gone": true,
        "devices_rebound": ["0000:3b:00.0"],
        "wiped": [{
            "device": "/dev/disk/by-id/nvme-0", "bytes": 1_u64 << 30, "sampled_bytes": 1 << 23, "zero": true,
            "sample_plan": "0".repeat(64),
        }],
    });
    (slot, cleanup)
}

#[test]
fn a_cleanup_proof_frees_its_slot_and_its_digest_stands_on_chain() -> Result<()> {
    scene::run("cleanup-proof", |scene, kind| {
        let mut site = Site::prepare(scene, kind)?;
        site.set("AUDIT__ANCHOR_INTERVAL", "1s");
        site.activate()?;
        site.start_provider()?;
        let token = site.token(NODE, &public(&key(1)), "1h")?;
        let agent = site.gateway().register(scene, &token, &key(1))?;
        let (slot, cleanup) = wiped();
        site.provider_run(&["slot", "add", NODE, "--slot", &slot.to_string()])?;
        let approved = site.provider_run(&["slot", "approve", NODE, "slot-0", "-o", "json"])?;
        let approved: Value = serde_json::from_str(&approved)?;
        let id = approved["task_id"].as_str().context("no task")?.to_owned();
        let tasks = agent.tasks()?;
        let [task] = tasks.as_slice() else {
            anyhow::bail!("{tasks:?}");
        };
        ensure!(
            task.task_id.as_str() == id && task.task_type == "slice.vm_release",
            "{task:?}"
        );
        let params: Value = serde_json::from_str(task.params.get())?;
        let result = json!({
            "allocation_id": params["allocation_id"], "vm_name": params["vm_name"], "existed": false,
            "hard_stopped": false, "slots": ["slot-0"], "slots_free": true, "timings": {}, "cleanup": cleanup,
        });
        let answer = agent.complete(&site.contract, task, &result)?;
        ensure!(answer.status == 200, "{answer:?}");
        let slots: Value = serde_json::from_str(&site.provider_run(&["slot", "list", "-o", "json"])?)?;
        ensure!(
            slots[0]["state"] == "free" && slots[0]["settled_by"] == id.as_str(),
            "{slots}"
        );

        let file = scene.path("release.json");
        let name = file.display().to_string();
        wait::until("a proof", SETTLED, || {
            Ok(site.provider_run(&["task", "prove", &id, "--file", &name]).ok())
        })?;
        let found = site.cli.json(&["query", "hpc", "proof", &name])?;
        let digest = Sha256::digest(result["cleanup"].to_string());
        let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        ensure!(found["cleanup_sha256"] == digest.as_str(), "{digest}: {found}");
        ensure!(found["not_proven"] == json!([]), "{found}");
        // A word of the proof that is another one, whoever signs it anew.
        let proof: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        for (place, value) in [
            ("/result/result/cleanup/wiped/0/zero", json!(false)),
            ("/result/result/cleanup/wiped/0/sampled_bytes", json!(1)),
            ("/result/result/cleanup/devices_rebound", json!([])),
            ("/result/result/slots", json!(["slot-0", "slot-1"])),
        ] {
            let mut other = proof.clone();
            *other.pointer_mut(place).context(place)? = value;
            fs::write(&file, other.to_string())?;
            let said = site.cli.fails(&["query", "hpc", "proof", &name])?;
            ensure!(said.contains("proof_"), "{place}: {said}");
        }
        let mut outcome = Outcome::new(kind, "cleanup-proof");
        outcome.set("proven", found["proven"].as_array().map_or(0, Vec::len));
        outcome.save()
    })
}
