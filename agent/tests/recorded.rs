//! The whole way from a recorded tree of an 8-GPU InfiniBand node to what the agent would report: the real binary, the
//! kernel's files from `fixtures/`, a stand-in for NVIDIA's library built here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod tree;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tree::unpack;

/// `inventory` on the recorded node; `define` breaks GPUs.
fn inventory(define: &[&str]) -> Value {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    unpack(
        &fs::read_to_string(fixtures.join("gpu-node.tree")).unwrap(),
        dir.path(),
    );
    // The recorded kernel log ends shortly before.
    fs::write(at("proc/uptime"), "10000.00 1.00\n").unwrap();
    fs::create_dir_all(at("dev")).unwrap();
    fs::create_dir_all(at("etc")).unwrap();
    fs::copy(fixtures.join("kmsg/gpu-node.txt"), at("dev/kmsg")).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([at("libnvidia-ml.so"), fixtures.join("nvml/stub.c")])
        .args(define.iter().map(|d| format!("-D{d}")))
        .status()
        .expect("a C compiler (Debian: gcc) is needed to build the stand-in");
    assert!(compiled.success());
    let root = dir.path().display();
    let config = format!(
        "provider_daemon: {{endpoint: 'https://a:1'}}\n\
         agent:\n  state_dir: {root}/state\n  storage_path: {root}\n  \
         roots: {{proc: {root}/proc, sys: {root}/sys, dev: {root}/dev, etc: {root}/etc}}\n\
         gpu: {{nvml_library: {root}/libnvidia-ml.so}}\nslurm: {{enabled: false}}\napi: {{listen: 'off'}}\n"
    );
    fs::write(at("config.yaml"), config).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
        .args(["inventory", "--output", "json", "--config"])
        .arg(at("config.yaml"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn figure<'a>(inventory: &'a Value, name: &str) -> &'a Value {
    let rows = inventory["figures"].as_array().unwrap();
    let row = rows.iter().find(|r| r["name"] == name);
    &row.unwrap_or_else(|| panic!("no figure {name} in {rows:#?}"))["value"]
}

#[test]
fn a_recorded_node_gives_its_capacity_and_figures() {
    let i = inventory(&["GPUS=8"]);
    let c = &i["capacity"];
    assert_eq!(
        (c["cpu_cores_total"].as_u64(), c["cpu_cores_available"].as_u64()),
        (Some(64), Some(64))
    );
    assert_eq!(
        (c["memory_gb_total"].as_u64(), c["memory_gb_available"].as_u64()),
        (Some(2016), Some(1500))
    );
    assert_eq!(
        (c["gpus_total"].as_u64(), c["gpus_available"].as_u64()),
        (Some(8), Some(8))
    );
    assert_eq!(c["gpu_type"].as_str(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(figure(&i, "uptime seconds").as_u64(), Some(10_000));
    assert_eq!(figure(&i, "CPU temperature °C").as_i64(), Some(63));
    assert_eq!(figure(&i, "GPUs on the bus").as_u64(), Some(8));
    let errors = figure(&i, "errors 24 h");
    assert_eq!(
        (errors["errors"].as_u64(), errors["warnings"].as_u64()),
        (Some(6), Some(7))
    );
    // Each fault by itself: when, where, what.
    let faults = errors["xids"].as_array().unwrap().iter();
    let faults: Vec<_> = faults
        .map(|x| {
            assert!(x["at"].as_u64().is_some() && x["meaning"].is_string(), "{x}");
            (x["device"].as_str().unwrap(), x["code"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(faults, [("0000:1b:00", 31), ("0000:3b:00", 79)]);
    let ports = figure(&i, "InfiniBand ports");
    let port = |name: &str| {
        let p = &ports[name];
        assert_eq!(
            (p["lost"].as_bool(), p["flaps_24h"].as_u64()),
            (Some(false), Some(0))
        );
        (
            p["state"].as_str(),
            p["physical"].as_str(),
            p["received"].as_u64(),
            p["sent"].as_u64(),
        )
    };
    assert_eq!(
        port("mlx5_0/1"),
        (
            Some("active"),
            Some("linkup"),
            Some(4 * 81_273_645_123),
            Some(4 * 79_273_645_123)
        )
    );
    assert_eq!(
        (port("mlx5_5/1").0, port("mlx5_5/1").1),
        (Some("down"), Some("polling"))
    );
    assert_eq!(figure(&i, "busiest port %")["percent"].as_u64(), Some(0));
    assert_eq!(figure(&i, "lost GPUs").as_u64(), Some(0));
    let findings = i["findings"].to_string();
    for part in ["Xid 79", "memory_uncorrected"] {
        assert!(findings.contains(part), "{part}: {findings}");
    }
    let text = i.to_string();
    for part in ["mlx5_5", "coretemp", "package", "mc3"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_lost_gpu_is_counted_and_not_offered() {
    let i = inventory(&["GPUS=8", "LOST=2"]);
    let c = &i["capacity"];
    assert_eq!(
        (c["gpus_total"].as_u64(), c["gpus_available"].as_u64()),
        (Some(8), Some(7))
    );
    assert_eq!(i["health"].as_str(), Some("degraded"), "{i:#}");
    let findings = i["findings"].to_string();
    assert!(findings.contains("gpu_lost"), "{findings}");
    let gpus = figure(&i, "GPUs")["gpus"].as_array().unwrap();
    let lost: Vec<_> = gpus.iter().map(|g| g["lost"].as_bool().unwrap()).collect();
    assert_eq!(lost, [false, false, true, false, false, false, false, false]);
}

#[test]
fn a_gpu_that_we_may_not_ask_is_unknown_to_the_inventory_and_no_other_is() {
    let i = inventory(&["GPUS=8", "DENIED=2"]);
    let gpus = &figure(&i, "GPUs")["gpus"];
    assert_eq!(
        (&gpus[2]["lost"], &gpus[2]["temperature"]),
        (&Value::from(false), &Value::Null)
    );
    assert!(
        gpus[2]["refused"].is_string() && gpus[1]["refused"].is_null(),
        "{gpus:#}"
    );
    let findings = i["findings"].to_string();
    assert!(
        findings.contains("gpus_unknown") && !findings.contains("gpu_lost"),
        "{findings}"
    );
}
