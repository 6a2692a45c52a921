//! NVIDIA GPUs through the agent's own child process and a stand-in library, built here with the C compiler.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use virtengine_node_agent::probe::Roots;
use virtengine_node_agent::probe::gpu::{GpuConfig, GpuProbe, GpuReport, Links, NvidiaProbe, Remapped};

const AGENT: &str = env!("CARGO_BIN_EXE_virtengine-node-agent");

/// The stand-in, with what `define` says broken.
fn library(dir: &Path, define: &[&str]) -> PathBuf {
    let path = dir.join("libnvidia-ml.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/nvml/stub.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([&path, &source])
        .args(define.iter().map(|d| format!("-D{d}")))
        .status()
        .expect("a C compiler (Debian: gcc) is needed to build the stand-in");
    assert!(status.success());
    path
}

fn ask(define: &[&str]) -> GpuReport {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path(), define);
    NvidiaProbe::new(Some(Path::new(AGENT)), Some(library))
        .read()
        .unwrap()
}

#[test]
fn eight_healthy_gpus_are_read_with_all_their_figures() {
    let r = ask(&["GPUS=8", "MIG=7"]);
    assert_eq!((r.gpus.len(), r.driver.as_deref()), (8, Some("550.54.15")));
    assert_eq!(
        (r.utilization(), r.memory_utilization(), r.temperature()),
        (Some(84), Some(25), Some(67))
    );
    assert_eq!(r.name(), Some("NVIDIA H100 80GB HBM3"));
    let g = &r.gpus[2];
    assert_eq!(
        (g.index, g.pci.as_deref(), g.lost),
        (2, Some("0000:1d:00.0"), false)
    );
    assert_eq!(
        (g.power_mw, g.power_limit_mw, g.processes),
        (Some(512_000), Some(700_000), Some(1))
    );
    assert_eq!((g.ecc_corrected, g.ecc_uncorrected), (Some(0), Some(0)));
    assert_eq!(
        g.links,
        Some(Links {
            active: 18,
            total: 18,
            errors: 0
        })
    );
    assert_eq!(g.remapped, Some(Remapped::default()));
    assert!(g.throttled_by.is_empty(), "idle is not throttled");
    assert_eq!((g.mig_instances, r.gpus[7].mig_instances), (None, Some(3)));
}

#[test]
fn faults_are_told_and_a_lost_gpu_stays_counted() {
    let r = ask(&["GPUS=4", "LOST=1", "BROKEN=3"]);
    assert_eq!(r.gpus.len(), 4);
    assert_eq!(
        (r.gpus[1].lost, r.gpus[1].temperature, r.working().count()),
        (true, None, 3)
    );
    let g = &r.gpus[3];
    assert_eq!((g.ecc_corrected, g.ecc_uncorrected), (Some(17), Some(2)));
    assert_eq!(
        g.remapped,
        Some(Remapped {
            corrected: 3,
            uncorrected: 1,
            pending: true,
            failed: true
        })
    );
    assert_eq!(
        g.links,
        Some(Links {
            active: 17,
            total: 18,
            errors: 9
        })
    );
    assert_eq!(g.throttled_by, ["temperature (hardware)", "power brake"]);
}

#[test]
fn a_gpu_that_we_may_not_ask_is_unknown_and_not_lost() {
    let r = ask(&["GPUS=4", "DENIED=1", "DEAD=3"]);
    let denied = &r.gpus[1];
    assert_eq!(
        (r.gpus.len(), denied.lost, denied.temperature, denied.memory_total),
        (4, false, None, None)
    );
    let why = denied.refused.as_deref().unwrap();
    assert!(why.contains("permission"), "{why}");
    // An error of the device itself is a loss.
    assert_eq!((r.gpus[3].lost, r.gpus[3].refused.as_deref()), (true, None));
    assert!(r.gpus[0].refused.is_none() && !r.gpus[0].lost);
}

#[test]
fn a_missing_library_is_an_error_in_words() {
    let e = NvidiaProbe::new(Some(Path::new(AGENT)), Some("/no/such/libnvidia-ml.so".into()))
        .read()
        .unwrap_err()
        .to_string();
    for part in ["/no/such/libnvidia-ml.so", "install NVIDIA's driver"] {
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn a_wedged_driver_is_left_alone_after_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let config = GpuConfig {
        enabled: None,
        nvml_library: Some(library(dir.path(), &["HANG"])),
    };
    let mut probe = GpuProbe::new(config, &Roots::below(dir.path()), Some(Path::new(AGENT)));
    let start = Instant::now();
    assert_eq!(probe.read(start), None);
    let took = start.elapsed();
    assert!(
        (Duration::from_secs(9)..Duration::from_secs(20)).contains(&took),
        "{took:?}"
    );
    let start = Instant::now();
    assert_eq!(probe.read(start), None);
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Where there is a real NVIDIA GPU its own library is asked; elsewhere there is nothing to ask.
#[test]
fn a_real_gpu_answers_with_what_it_is() {
    if !Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let report = NvidiaProbe::new(Some(Path::new(AGENT)), None).read().unwrap();
    assert!(report.driver.is_some() && !report.gpus.is_empty(), "{report:?}");
    for gpu in &report.gpus {
        assert!(!gpu.lost, "{gpu:?}");
        assert!(
            gpu.uuid.as_deref().is_some_and(|u| u.starts_with("GPU-")),
            "{gpu:?}"
        );
        assert!(gpu.memory_total.is_some_and(|b| b > 1 << 30), "{gpu:?}");
        assert!(gpu.temperature.is_some_and(|t| (5..120).contains(&t)), "{gpu:?}");
        assert!(gpu.utilization.is_some_and(|p| p <= 100), "{gpu:?}");
    }
}
