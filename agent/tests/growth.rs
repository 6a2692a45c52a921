//! As many rounds of the real collectors as a day has, on a recorded node whose kernel log goes on: memory does not grow. The
//! wall clock stands still meanwhile: what is counted by the hour stays in one. Alone in its process, whose memory is looked at.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod memory;
#[path = "../src/stand_in.rs"]
mod stand_in;
mod tree;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use memory::resident;
use stand_in::stand_in;
use virtengine_node_agent::clock::instant;
use virtengine_node_agent::config::{Overrides, load};
use virtengine_node_agent::sample::{Category, Collector, recommended, standard};

/// Between two heartbeats.
const ROUND: Duration = Duration::from_secs(10);
/// A day of them.
const DAY: u32 = 8640;
/// Rounds from one line of the kernel's log to the next.
const ERROR_EACH: u32 = 10;

/// Slurm's programs as stand-ins: a node with another job each time it is asked.
fn batch_system(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let node =
        "echo 'NodeName=node042 CPUAlloc=1 CPUEfctv=4 CPUTot=4 RealMemory=4096 AllocMem=1024 State=MIXED'";
    let queue = "echo \"$$|RUNNING|0|node042||(null)\"";
    for (name, says) in [("scontrol", node), ("squeue", queue)] {
        stand_in(&folder.join(name), &format!("#!/bin/sh\n{says}\n"));
    }
}

fn due(category: Category, round: u32) -> bool {
    let each = recommended(category).as_secs().div_ceil(ROUND.as_secs());
    u64::from(round).is_multiple_of(each.max(1))
}

#[test]
fn a_day_of_real_collectors_grows_no_memory() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    tree::unpack(
        &fs::read_to_string(fixtures.join("gpu-node.tree")).unwrap(),
        dir.path(),
    );
    fs::write(at("proc/uptime"), "10000.00 1.00\n").unwrap();
    for folder in ["dev", "etc", "state"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::copy(fixtures.join("kmsg/gpu-node.txt"), at("dev/kmsg")).unwrap();
    batch_system(&at("slurm"));
    let root = dir.path().display();
    let text = format!(
        "provider_daemon: {{endpoint: 'https://a:1'}}\n\
         agent:\n  state_dir: {root}/state\n  storage_path: {root}\n  \
         roots: {{proc: {root}/proc, sys: {root}/sys, dev: {root}/dev, etc: {root}/etc}}\n\
         gpu: {{enabled: false}}\nslurm: {{enabled: true, node_name: node042, bin_dir: {root}/slurm}}\n"
    );
    fs::write(at("config.yaml"), text).unwrap();
    let config = load(&at("config.yaml"), &Overrides::default()).unwrap();
    let mut collectors: Vec<Box<dyn Collector>> = standard(&config.sources());
    let mut log = OpenOptions::new().append(true).open(at("dev/kmsg")).unwrap();
    let start = instant();
    let (mut warm, mut readings) = (0, 0);
    for round in 0..DAY {
        if round.is_multiple_of(ERROR_EACH) {
            let at = 9_000_000_000 + u64::from(round) * 10_000_000;
            writeln!(
                log,
                "3,{},{at},-;EDAC MC0: 1 CE memory read error on DIMM{round}",
                10_000 + round
            )
            .unwrap();
        }
        let now = start + ROUND * round;
        for collector in &mut collectors {
            if due(collector.category(), round) {
                readings += collector.collect(now).len();
            }
        }
        if round == DAY / 12 {
            warm = resident();
        }
    }
    let grown = resident().saturating_sub(warm);
    println!("{readings} readings, {grown} KiB more after the first two hours, {warm} KiB then");
    assert!(readings > 50_000, "{readings}");
    assert!(grown < 1024, "grew by {grown} KiB");
}
