//! The agent under its systemd units in a Debian that boots (by translation): installed by itself, ready, healthy on
//! chain, a key rotated within the unit's walls, ended by the watchdog and started again, tasks beside it, uninstalled
//! clean; and the host switched off by the provider's order, through the helper. Before it the provider's unit, with a chain
//! key that systemd seals and hands over. Needs root, mmdebstrap and qemu-system-x86.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpc_tests::guest::{Image, Machine, Options};
use hpc_tests::site::{CLUSTER, Site};
use hpc_tests::{process, program, scene};
use serde_json::Value;

const NODE: &str = "node-hpc1-compute-042";
const PROVIDER_UNIT: &str = "virtengine-provider.service";
/// A key of the test's command line that the provider's unit gets.
const CHAIN_KEY: &str = "sealed";

/// By translation everything takes ten times as long.
const BOOT: Duration = Duration::from_secs(240);
const STEP: Duration = Duration::from_secs(300);

/// The exposure that the documentation promises, in tenths.
const EXPOSURE: f64 = 3.0;

/// A program without its symbols: it is a tenth of the size.
fn stripped(name: &str, folder: &Path) -> Result<PathBuf> {
    let whole = program::path(name)?;
    let mut strip = Command::new("strip");
    process::output(strip.arg("-o").arg(folder.join(name)).arg(&whole))?;
    Ok(whole)
}

/// What the machine gets: the release as its archive holds it, keys, tokens, the test's own programs.
fn payload(site: &Site, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("keys"))?;
    let agent = stripped("virtengine-node-agent", folder)?;
    for (from, to) in [
        ("deploy/install-node-agent.sh", "install-node-agent.sh"),
        ("deploy/systemd/virtengine-provider.service", PROVIDER_UNIT),
        ("tests/tests/guest/provider.sh", "provider.sh"),
        ("tests/tests/guest/run.sh", "run"),
    ] {
        fs::copy(program::root().join(from), folder.join(to)).context(from)?;
    }
    for script in ["provider.sh", "run"] {
        fs::set_permissions(folder.join(script), fs::Permissions::from_mode(0o755))?;
    }
    let mut public = Vec::new();
    for (made, key, name) in [
        ("first", "agent.key", "agent.pub"),
        ("next", "agent.key.next", "agent.next.pub"),
    ] {
        let made = folder.join("keys").join(made);
        let mut keygen = Command::new(&agent);
        process::output(keygen.args(["keygen", "--output-dir"]).arg(&made))?;
        fs::rename(made.join("agent.key"), folder.join("keys").join(key))?;
        fs::rename(made.join("agent.pub"), folder.join("keys").join(name))?;
        fs::remove_dir_all(&made)?;
        public.push(fs::read_to_string(folder.join("keys").join(name))?);
    }
    for (public, file) in public.iter().zip(["token", "next-token"]) {
        fs::write(folder.join(file), site.token(NODE, public.trim(), "1h")?)?;
    }
    fs::write(folder.join("port"), site.gateway_port().to_string())?;
    let config = format!(
        "node:\n  id: {NODE}\n  cluster_id: {CLUSTER}\nprovider_daemon:\n  endpoint: {}\nagent:\n  \
         registration_token_file: /etc/virtengine/node-agent/token\nsampling:\n  base_interval: 10s\n\
         commands:\n  shutdown: host\n",
        site.gateway().url
    );
    fs::write(folder.join("config"), config)?;
    stripped("virtengine-provider", folder)?;
    fs::write(folder.join("contract"), &site.contract)?;
    fs::copy(site.cli.words(CHAIN_KEY), folder.join("words"))?;
    Ok(())
}

/// The provider's unit starts with its key alone, which is nowhere but where systemd hands it over, while the unit runs.
fn check_provider(machine: &mut Machine, address: &str) -> Result<()> {
    let without = machine.wait("key-without ", STEP)?;
    ensure!(without == "exit-code 78 0", "without its key: {without}");
    let key = machine.wait("key ", STEP)?;
    ensure!(key == format!("active running {address}"), "{key}");
    let holds = machine.wait("key-in ", STEP)?;
    let place = format!("/run/credentials/{PROVIDER_UNIT}/relayer-2");
    ensure!(holds == place, "the words are in {holds}");
    let modes = machine.wait("key-modes ", STEP)?;
    ensure!(modes.split(' ').all(|m| m.ends_with('0')), "modes {modes}");
    let left = machine.wait("key-left ", STEP)?;
    ensure!(left.is_empty(), "the words stayed in {left}");
    Ok(())
}

/// The checks of `doctor` that are wrong.
fn wrong(doctor: &str) -> Result<Vec<String>> {
    let all: Value = serde_json::from_str(doctor)?;
    let checks = all.get("checks").and_then(Value::as_array).context("no checks")?;
    let wrong = |c: &&Value| c.get("grade").and_then(Value::as_str) == Some("wrong");
    Ok(checks.iter().filter(wrong).map(ToString::to_string).collect())
}

#[test]
fn under_its_unit_the_agent_is_ready_rotates_its_key_and_is_started_again_by_the_watchdog() -> Result<()> {
    scene::run("guest-unit", |scene, kind| {
        let image = Image::debian()?;
        let site = Site::start(scene, kind)?;
        let folder = scene.folder("payload")?;
        let address = site.cli.add_key(CHAIN_KEY)?;
        payload(&site, &folder)?;
        let options = Options {
            payload_size: "384M".to_owned(),
            ..Options::default()
        };
        let mut machine = Machine::start(&image, &folder, &scene.path("machine"), &options)?;
        machine.wait("boots", BOOT)?;
        check_provider(&mut machine, &address)?;
        let groups = machine.wait("groups ", STEP)?;
        ensure!(
            groups.split(' ').any(|g| g == "systemd-journal"),
            "groups: {groups}"
        );
        let before = wrong(&machine.wait("doctor-before ", STEP)?)?;
        ensure!(before.is_empty(), "before the registration: {before:?}");
        let ready = machine.wait("ready ", STEP)?;
        println!("unit: {ready}");
        ensure!(ready == "notify active running", "{ready}");
        machine.wait("status ", STEP)?;
        site.wait_state(NODE, "active")?;
        let after = wrong(&machine.wait("doctor-after ", STEP)?)?;
        ensure!(after.is_empty(), "once registered: {after:?}");
        let metrics: u32 = machine.wait("metrics ", STEP)?.parse()?;
        ensure!(metrics > 10, "{metrics} metrics of ours");

        for what in ["security ", "security-helper "] {
            let security = machine.wait(what, STEP)?;
            println!("systemd-analyze {what}: {security}");
            let score: f64 = security
                .split_whitespace()
                .find_map(|w| w.parse().ok())
                .context("no score")?;
            ensure!(score <= EXPOSURE, "exposure {score}, promised {EXPOSURE}");
        }
        let door = machine.wait("helper ", STEP)?;
        ensure!(door == "600 virtengine", "{door}");
        // Without a section `tasks` a person has to write something; with it they are taken.
        let without = machine.wait("tasks-without ", STEP)?;
        ensure!(without == "failed 2 0", "{without}");
        let tasks = machine.wait("tasks ", STEP)?;
        ensure!(tasks == "active running root", "{tasks}");

        let rotated = machine.wait("rotated ", STEP)?;
        let next = fs::read_to_string(folder.join("keys/agent.next.pub"))?;
        ensure!(rotated == next.trim(), "{rotated}");
        let large = machine.wait("too-large ", STEP)?;
        ensure!(large == "active 0 same", "too large: {large}");
        let watchdog = machine.wait("watchdog ", STEP)?;
        println!("watchdog: {watchdog}");
        ensure!(watchdog.contains(" 1 after "), "{watchdog}");
        let stopped = machine.wait("stopped ", STEP)?;
        ensure!(stopped == "success 0", "{stopped}");
        machine.wait("purged", STEP)?;

        // Installed again as the same node: the provider switches the host off.
        machine.wait("waits", STEP)?;
        let before = site.sequence(NODE)?;
        site.wait_sequence(NODE, before + 1)?;
        let order = [
            "command",
            "send",
            NODE,
            "--type",
            "shutdown",
            "--parameters",
            r#"{"reason":"power works"}"#,
        ];
        site.provider_run(&order)?;
        machine.gone(STEP)?;
        println!("the host is off; orders: {:?}", site.orders(NODE)?);
        Ok(())
    })
}
