//! The agent's packages on a clean system: an active node from the package and its guide alone, an upgrade that keeps what
//! the node is, a purge that leaves nothing. Needs root, `mmdebstrap`, `rpm`, and what `scripts/package` made.

mod container;
mod root;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hpc_tests::site::Site;
use hpc_tests::{process, program, scene, wait};

use root::Root;

const NODE: &str = "node-hpc1-compute-042";
const CONFIG: &str = "/etc/virtengine/node-agent/config.yaml";
const KEYS: &str = "/etc/virtengine/node-agent/keys";
const TASKS: &str = "/var/lib/virtengine/tasks";

/// The longest that the documentation promises.
const PROMISED: Duration = Duration::from_secs(5 * 60);

/// The one file in `target/package` that ends so.
fn package(suffix: &str) -> Result<PathBuf> {
    let folder = program::root().join("target/package");
    fs::read_dir(&folder)
        .with_context(|| format!("{} is missing. Remedy: scripts/package", folder.display()))?
        .filter_map(Result::ok)
        .map(|e| e.path())
        .find(|p| p.to_string_lossy().ends_with(suffix))
        .with_context(|| format!("no package *{suffix}. Remedy: scripts/package"))
}

/// Puts a file of this machine into the tree's root folder.
fn bring(root: &Root, file: &PathBuf, name: &str) -> Result<()> {
    fs::copy(file, root.path(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}

/// Runs the program as its unit does: as the unit's user, with the unit's own command line.
fn start_unit(root: &Root, name: &str) -> Result<process::Process> {
    let unit = fs::read_to_string(root.path("/lib/systemd/system").join(name))?;
    let value = |key: &str| unit.lines().find_map(|l| l.strip_prefix(key));
    let line = value("ExecStart=").context("the unit has no ExecStart")?;
    let (user, group) = (
        format!("--reuid={}", value("User=").unwrap_or("root")),
        format!("--regid={}", value("Group=").unwrap_or("root")),
    );
    let mut words = vec!["setpriv", &user, &group, "--init-groups"];
    words.extend(line.split_whitespace());
    root.start(&words)
}

fn start_service(root: &Root) -> Result<process::Process> {
    start_unit(root, "virtengine-node-agent.service")
}

/// What the task agent says where it cannot start, and with which code.
fn tasks_refuse(root: &Root, code: i32, words: &str) -> Result<()> {
    let script = format!("virtengine-node-agent tasks --config {CONFIG}; test $? = {code}");
    let said = root.run(&["sh", "-c", &format!("({script}) 2>&1")])?;
    ensure!(said.contains(words), "not {words:?}: {said}");
    Ok(())
}

/// Takes tasks, as the second unit does, until the end of the test's step.
fn start_tasks(root: &Root) -> Result<process::Process> {
    let mut tasks = start_unit(root, "virtengine-node-tasks.service")?;
    wait::until("the task agent", Duration::from_secs(30), || {
        tasks.check_alive()?;
        Ok(root.path(TASKS).join("authority.json").exists().then_some(()))
    })?;
    root.run(&["virtengine-node-agent", "tasks", "list", "--config", CONFIG])?;
    Ok(tasks)
}

/// The guide's steps, typed into the tree: configuration, key, token, registration.
fn configure(root: &Root, site: &Site) -> Result<()> {
    let config = fs::read_to_string(root.path(CONFIG))?;
    let edited = config
        .replace(
            "#endpoint: \"https://provider.example.com:8443\"",
            &format!("endpoint: \"{}\"", site.gateway().url),
        )
        .replace("#registration_token_file:", "registration_token_file:");
    ensure!(
        edited.contains(&site.gateway().url),
        "the packaged configuration has no endpoint line"
    );
    // As an editor does it: the same file, so owner and mode stay.
    fs::write(root.path(CONFIG), edited)?;
    root.run(&["virtengine-node-agent", "keygen", "--output-dir", KEYS])?;
    let public = root.run(&["cat", &format!("{KEYS}/agent.pub")])?;
    let token = site.token(NODE, public.trim(), "1h")?;
    let file = "/etc/virtengine/node-agent/token";
    root.run(&[
        "install",
        "-o",
        "virtengine",
        "-g",
        "virtengine",
        "-m",
        "600",
        "/dev/null",
        file,
    ])?;
    fs::write(root.path(file), token)?;
    root.run(&["virtengine-node-agent", "config", "check", "--config", CONFIG])?;
    root.run(&["virtengine-node-agent", "register", "--config", CONFIG])?;
    Ok(())
}

#[test]
fn the_debian_package_makes_an_active_node_upgrades_in_place_and_purges_clean() -> Result<()> {
    scene::run("install-deb", |scene, kind| {
        let site = Site::start(scene, kind)?;
        let root = Root::make(scene.path("root"), scene.log("agent"))?;
        ensure!(
            root.ours()?.is_empty(),
            "the clean system is not clean: {:?}",
            root.ours()?
        );
        bring(&root, &package("_amd64.deb")?, "agent.deb")?;
        bring(&root, &package("_amd64.deb.next")?, "next.deb")?;

        let began = Instant::now();
        root.run(&["dpkg", "--install", "/agent.deb"])?;
        // The agent says what is missing, before anybody has configured it.
        let unconfigured = root.run(&["virtengine-node-agent", "config", "check", "--config", CONFIG]);
        let said = format!(
            "{:#}",
            unconfigured.err().context("an empty configuration passes")?
        );
        ensure!(said.contains("provider_daemon.endpoint"), "not the field: {said}");
        for file in [
            "/lib/systemd/system/virtengine-node-agent.service",
            "/lib/systemd/system/virtengine-node-tasks.service",
            "/lib/systemd/system/virtengine-node-helper.socket",
            "/lib/systemd/system/virtengine-node-helper@.service",
            "/lib/udev/rules.d/60-virtengine-node-agent.rules",
            "/usr/share/doc/virtengine-node-agent/agent.md",
            "/usr/share/doc/virtengine-node-agent/agent-health.md",
            "/usr/share/doc/virtengine-node-agent/tasks.md",
            "/usr/share/doc/virtengine-node-agent/machines.md",
            "/usr/share/man/man8/virtengine-node-agent.8.gz",
        ] {
            ensure!(root.path(file).exists(), "{file} is not in the package");
        }
        configure(&root, &site)?;
        let mut agent = start_service(&root)?;
        site.wait_state(NODE, "active")?;
        let took = began.elapsed();
        println!(
            "from dpkg --install to active on chain: {:.1} s",
            took.as_secs_f64()
        );
        ensure!(took < PROMISED, "{took:?} is longer than promised");

        let key = fs::metadata(root.path(&format!("{KEYS}/agent.key")))?;
        ensure!(
            key.permissions().mode() & 0o077 == 0,
            "the key is readable by others"
        );
        ensure!(
            key.uid() != 0,
            "the key belongs to root, the service cannot read it"
        );

        // Tasks: only where the configuration has them.
        tasks_refuse(&root, 2, "no section tasks")?;
        let untasked = fs::read_to_string(root.path(CONFIG))?;
        fs::write(root.path(CONFIG), format!("{untasked}\ntasks:\n  user: nobody\n"))?;
        let mut tasks = start_tasks(&root)?;

        // Upgrade: the service stops, the files change, it starts again as the same node.
        let edited = fs::read_to_string(root.path(CONFIG))?;
        ensure!(
            agent.stop(Duration::from_secs(20))?.success(),
            "the agent did not end well"
        );
        ensure!(
            tasks.stop(Duration::from_secs(60))?.success(),
            "the task agent did not end well"
        );
        root.run(&["dpkg", "--install", "/next.deb"])?;
        ensure!(
            fs::read_to_string(root.path(CONFIG))? == edited,
            "the upgrade changed the configuration"
        );
        let before = site.sequence(NODE)?;
        let mut agent = start_service(&root)?;
        site.wait_sequence(NODE, before + 1)?;
        let mut tasks = start_tasks(&root)?;
        tasks.stop(Duration::from_secs(60))?;
        ensure!(
            agent.stop(Duration::from_secs(20))?.success(),
            "the agent did not end well"
        );

        // What tasks hold on the host is not forgotten by a purge.
        let held = root.path(TASKS).join("holdings.json");
        let machine = r#"{"holdings":[{"kind":"vm","name":"m-1","task_id":"t","since":1,"facts":{}}]}"#;
        fs::write(&held, machine)?;
        let said = root.run(&["sh", "-c", "dpkg --purge virtengine-node-agent 2>&1"])?;
        ensure!(
            said.contains("vm m-1"),
            "the removal does not name what stays: {said}"
        );
        ensure!(
            held.exists() && !root.path(CONFIG).exists() && !root.path(KEYS).exists(),
            "the purge took what tasks hold, or left what it should take"
        );
        fs::write(&held, "{\n  \"holdings\": []\n}")?;
        root.run(&["dpkg", "--install", "/next.deb"])?;
        root.run(&["dpkg", "--purge", "virtengine-node-agent"])?;
        fs::remove_file(root.path("agent.deb"))?;
        fs::remove_file(root.path("next.deb"))?;
        ensure!(root.ours()?.is_empty(), "left behind: {:?}", root.ours()?);
        ensure!(
            !fs::read_to_string(root.path("/etc/passwd"))?.contains("virtengine"),
            "the user is still there"
        );
        Ok(())
    })
}

#[test]
fn the_rpm_package_installs_upgrades_and_goes_in_a_root_that_rpm_made() -> Result<()> {
    scene::run("install-rpm", |scene, _| {
        let (agent, next) = (package(".x86_64.rpm")?, package(".x86_64.rpm.next")?);
        let (agent, next) = (agent.display().to_string(), next.display().to_string());
        let debian = Root::make(scene.path("debian"), scene.log("agent"))?;
        let root = Root::of_packages(scene.path("root"), scene.log("agent"))?;
        // It asks for what it needs by the names that RPM systems have.
        let refused = root
            .rpm(&["--install", &agent])
            .err()
            .context("it needs nothing")?;
        let said = format!("{refused:#}");
        for needed in ["glibc >= 2.28", "libgcc", "shadow-utils"] {
            ensure!(said.contains(needed), "{needed}: {said}");
        }
        root.rpm(&["--install", &debian.as_package(&scene.folder("build")?)?])?;
        let before = root.ours()?;
        ensure!(before.is_empty(), "the clean system is not clean: {before:?}");
        root.rpm(&["--install", &agent])?;
        let version = root.run(&["virtengine-node-agent", "--version"])?;
        ensure!(version.starts_with("virtengine-node-agent "), "{version}");
        root.run(&["id", "virtengine"])?;
        // All is as in the package, but for whose the configuration has become.
        let differs = root.rpm_says(&["--verify", "virtengine-node-agent"])?;
        let others: Vec<&str> = differs
            .lines()
            .filter(|l| !l.contains("/etc/virtengine/"))
            .collect();
        ensure!(others.is_empty(), "{others:?}");

        let edited = "# edited by the site\n";
        fs::write(root.path(CONFIG), edited)?;
        root.run(&["virtengine-node-agent", "keygen", "--output-dir", KEYS])?;
        root.rpm(&["--upgrade", &next])?;
        let there = root.rpm(&["--query", "virtengine-node-agent"])?;
        ensure!(there.contains("next"), "{there}");
        ensure!(
            fs::read_to_string(root.path(CONFIG))? == edited
                && root.path(&format!("{KEYS}/agent.key")).exists(),
            "the upgrade changed configuration or key"
        );
        root.run(&["id", "virtengine"])?;
        root.rpm(&["--erase", "virtengine-node-agent"])?;
        for gone in [
            "/usr/bin/virtengine-node-agent",
            "/usr/lib/systemd/system/virtengine-node-agent.service",
            "/usr/lib/udev/rules.d/60-virtengine-node-agent.rules",
            "/usr/share/doc/virtengine-node-agent",
        ] {
            ensure!(!root.path(gone).exists(), "{gone} is still there");
        }
        ensure!(
            root.path(&format!("{CONFIG}.rpmsave")).exists()
                && root.path(&format!("{KEYS}/agent.key")).exists(),
            "a removal took what the node is"
        );
        Ok(())
    })
}

#[test]
fn the_archive_installs_and_uninstalls_clean() -> Result<()> {
    scene::run("install-archive", |scene, _| {
        let root = Root::make(scene.path("root"), scene.log("agent"))?;
        let folder = root.path("/").display().to_string();
        // The archive, without a package manager.
        let archive = package("-linux-amd64.tar.gz")?.display().to_string();
        let mut unpack = std::process::Command::new("tar");
        process::output(unpack.args([
            "--extract",
            "--gzip",
            "--strip-components=1",
            "--file",
            &archive,
            "--directory",
            &format!("{folder}/opt"),
        ]))?;
        let would = root.run(&["/opt/virtengine-node-agent", "install", "--dry-run"])?;
        ensure!(
            would.contains("user virtengine") && !root.path("/usr/local/bin/virtengine-node-agent").exists(),
            "{would}"
        );
        root.run(&["/opt/install-node-agent.sh"])?;
        let version = root.run(&["/usr/local/bin/virtengine-node-agent", "--version"])?;
        ensure!(version.starts_with("virtengine-node-agent "), "{version}");
        root.run(&["virtengine-node-agent", "keygen", "--output-dir", KEYS])?;
        // Again, by the installed program itself.
        let again = root.run(&["virtengine-node-agent", "install"])?;
        ensure!(
            !again.contains("is there"),
            "the second time changes something: {again}"
        );
        ensure!(
            root.path(&format!("{KEYS}/agent.key")).exists(),
            "installing again took the key away"
        );
        root.run(&["/opt/install-node-agent.sh", "uninstall", "--purge"])?;
        for gone in [
            "/etc/virtengine/node-agent",
            "/var/lib/virtengine",
            "/usr/local/bin/virtengine-node-agent",
            "/etc/systemd/system/virtengine-node-agent.service",
            "/etc/systemd/system/virtengine-node-tasks.service",
            "/etc/systemd/system/virtengine-node-helper.socket",
            "/etc/udev/rules.d/60-virtengine-node-agent.rules",
        ] {
            ensure!(!root.path(gone).exists(), "{gone} is still there");
        }
        Ok(())
    })
}
