//! The real binary as a process: command line, signals, kill -9.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use gateway::{Gateway, Home, NODE, Port, read, until_status};
use hpc_schema::heartbeat::HealthStatus;
use tokio::process::{Child, Command};
use virtengine_node_agent::sequence::BLOCK;

fn command(arguments: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"));
    c.args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    c
}

/// Longest for a program that is to end by itself.
const ENDS: Duration = Duration::from_secs(120);

async fn output(arguments: &[&str]) -> Output {
    let ended = tokio::time::timeout(ENDS, command(arguments).output()).await;
    ended
        .unwrap_or_else(|_| panic!("{arguments:?} does not end"))
        .unwrap()
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap()
}

fn start(config: &Path) -> Child {
    start_with(config, Stdio::piped())
}

fn start_with(config: &Path, stderr: Stdio) -> Child {
    command(&["run", "--config", config.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits until the agent has said so into its log.
async fn until_said(log: &Path, part: &str) {
    let end = Instant::now() + ENDS;
    while !read(log).contains(part) {
        assert!(Instant::now() < end, "{part} in {}", read(log));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the process said on standard error, once it has ended.
async fn stderr(child: Child) -> (i32, String) {
    let ended = tokio::time::timeout(ENDS, child.wait_with_output()).await;
    let out = ended.expect("the agent does not end").unwrap();
    (code(out.status), String::from_utf8(out.stderr).unwrap())
}

#[tokio::test]
async fn keygen_makes_relative_folders_and_a_missing_key_or_file_is_told_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let mut keygen = command(&["keygen", "--output-dir", "new/keys"]);
    let out = keygen.current_dir(dir.path()).output().await.unwrap();
    assert_eq!(code(out.status), 0, "{}", String::from_utf8_lossy(&out.stderr));
    assert!(dir.path().join("new/keys/agent.key").is_file());

    let none = dir.path().join("none.yaml");
    let out = output(&["config", "check", "--config", none.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(code(out.status), 2, "{said}");
    assert!(
        said.contains("does not exist") && said.contains("--config"),
        "{said}"
    );

    let config = dir.path().join("config.yaml");
    let key = dir.path().join("absent/agent.key");
    let text = format!(
        "node: {{id: {NODE}, cluster_id: hpc-cluster-1}}\nprovider_daemon: {{endpoint: 'https://127.0.0.1:1'}}\nagent: {{key_path: {}}}\n",
        key.display()
    );
    std::fs::write(&config, text).unwrap();
    let out = output(&["config", "check", "--config", config.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(code(out.status), 2, "{said}");
    assert!(
        said.contains("agent.key_path") && said.contains("virtengine-node-agent keygen"),
        "{said}"
    );
    assert!(out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[tokio::test]
async fn what_root_makes_in_the_services_folder_is_made_by_the_service_and_its_links_lead_nowhere() {
    use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    for name in ["service", "roots"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    chown(at("service"), Some(4711), Some(4711)).unwrap();
    let out = output(&["keygen", "--output-dir", at("service/keys").to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(code(out.status), 0, "{said}");
    assert!(said.starts_with("as 4711, to whom "), "{said}");
    assert_eq!(
        std::fs::metadata(at("service/keys/agent.key")).unwrap().uid(),
        4711
    );
    symlink(at("roots"), at("service/link")).unwrap();
    lchown(at("service/link"), Some(4711), Some(4711)).unwrap();
    let out = output(&["keygen", "--output-dir", at("service/link").to_str().unwrap()]).await;
    assert_eq!(code(out.status), 1);
    assert_eq!(std::fs::read_dir(at("roots")).unwrap().count(), 0);
}

#[tokio::test]
async fn keygen_register_run_and_status_as_the_specification_shows_them() {
    let gateway = Gateway::start().await;
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    let out = output(&["keygen", "--output-dir", keys.to_str().unwrap()]).await;
    assert_eq!(code(out.status), 0);
    let public = read(&keys.join("agent.pub"));
    assert_eq!(public.lines().count(), 1);
    let mode = std::fs::metadata(keys.join("agent.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // A second time: refused, and the key stays.
    let out = output(&["keygen", "--output-dir", keys.to_str().unwrap()]).await;
    assert_eq!(code(out.status), 1);
    assert!(String::from_utf8_lossy(&out.stderr).contains("--force"));
    assert_eq!(read(&keys.join("agent.pub")), public);
    let out = output(&["key", "show", "--key", keys.join("agent.key").to_str().unwrap()]).await;
    assert_eq!(String::from_utf8(out.stdout).unwrap(), public);

    let home = Home {
        key: virtengine_node_agent::key::load(&keys.join("agent.key")).unwrap(),
        dir,
    };
    home.calm();
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let config = config.to_str().unwrap();
    // Neither registered nor running.
    assert_eq!(code(output(&["status", "--config", config]).await.status), 1);
    let out = output(&["register", "--config", config]).await;
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(code(out.status), 0, "{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        said.contains(&format!("registered {NODE} in cluster hpc-cluster-1")),
        "{said}"
    );
    let said = String::from_utf8(output(&["register", "--config", config]).await.stdout).unwrap();
    assert!(said.starts_with("already registered"), "{said}");

    let child = start(Path::new(config));
    gateway.until_heartbeats(1).await;
    let mut healthy = output(&["status", "--config", config]).await;
    for _ in 0..50 {
        if code(healthy.status) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        healthy = output(&["status", "--config", config]).await;
    }
    let said = String::from_utf8(healthy.stdout).unwrap();
    assert!(
        said.starts_with("healthy") && said.contains("state on chain:  active"),
        "{said}"
    );
    let json = output(&["status", "--config", config, "-o", "json"]).await.stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["status"]["chain"]["node_state"], "active");
    // Told beside the time, and never one that is only on its way.
    let accepted = json["status"]["last_accepted_sequence"].as_u64().unwrap();
    assert_eq!(
        json["status"]["receipt"]["sequence"].as_u64(),
        Some(accepted),
        "{json:#}"
    );
    let out = output(&["run", "--config", config]).await;
    assert_eq!(code(out.status), 2);
    assert!(String::from_utf8_lossy(&out.stderr).contains("another agent runs"));

    let stopped = Instant::now();
    signal(&child, rustix::process::Signal::TERM);
    let (status, log) = stderr(child).await;
    assert_eq!(status, 0, "{log}");
    assert!(stopped.elapsed() < Duration::from_secs(5));
    assert_eq!(
        gateway.seen().heartbeats.last().unwrap().heartbeat.health.status,
        HealthStatus::Offline
    );
    assert_eq!(code(output(&["status", "--config", config]).await.status), 1);
}

#[tokio::test]
async fn run_registers_by_itself_when_it_has_a_token_and_waits_for_the_gateway() {
    let shared = std::sync::Arc::new(gateway::Shared::new());
    let port = Port::free();
    let home = Home::new();
    let url = format!("https://localhost:{}", port.number());
    let token = shared.token(&home.key.public(), "token-1");
    let child = start(&home.configure(&[url], Some(&token)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let gateway = Gateway::start_at(port.address(), shared).await;
    gateway.until_heartbeats(1).await;
    signal(&child, rustix::process::Signal::TERM);
    let (status, log) = stderr(child).await;
    assert_eq!(status, 0, "{log}");
    assert!(!log.contains(&token), "the token stands in the log");
}

#[tokio::test]
async fn a_hangup_reloads_the_configuration_and_a_wrong_one_changes_nothing() {
    let (first, second) = (Gateway::start().await, Home::new());
    let home = second;
    let config = home.configure(&[first.url()], Some(&first.token(&home.key.public())));
    let said = home.path("agent.log");
    let child = start_with(&config, std::fs::File::create(&said).unwrap().into());
    first.until_heartbeats(1).await;
    std::fs::write(&config, "provider_daemon: {endpoint: 'http://wrong'}\n").unwrap();
    signal(&child, rustix::process::Signal::HUP);
    until_said(&said, "configuration not reloaded").await;
    home.configure(&[first.url()], None);
    let text = read(&config).replace("sampling:", "logging: {level: debug}\nsampling:");
    std::fs::write(&config, text).unwrap();
    signal(&child, rustix::process::Signal::HUP);
    until_said(&said, "configuration reloaded").await;
    signal(&child, rustix::process::Signal::TERM);
    let (status, _) = stderr(child).await;
    let log = read(&said);
    assert_eq!(status, 0, "{log}");
    assert!(
        log.contains("configuration not reloaded") && log.contains("provider_daemon.endpoint"),
        "{log}"
    );
    assert!(log.contains("configuration reloaded"), "{log}");
}

#[tokio::test]
async fn after_a_hangup_the_new_endpoint_is_in_force() {
    let (first, second) = (Gateway::start().await, Gateway::start().await);
    let home = Home::new();
    first.behaviour().next_heartbeat_seconds = 10;
    let config = home.configure(&[first.url()], Some(&first.token(&home.key.public())));
    let child = start(&config);
    first.until_heartbeats(1).await;
    // The second gateway is another door of the same site.
    drop(second);
    let address = "127.0.0.1:0".parse().unwrap();
    let second = Gateway::start_at(address, std::sync::Arc::clone(&first.shared)).await;
    assert_ne!(first.address, second.address);
    let shared = std::sync::Arc::clone(&first.shared);
    drop(first);
    home.configure(&[second.url()], None);
    signal(&child, rustix::process::Signal::HUP);
    let seen = shared.seen.lock().unwrap().heartbeats.len();
    second.until_heartbeats(seen + 1).await;
    drop(child);
}

#[tokio::test]
async fn a_hangup_while_it_registers_takes_the_corrected_file() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let token = gateway.token(&home.key.public());
    let config = home.configure(&["https://localhost:1".to_owned()], Some(&token));
    let said = home.path("agent.log");
    let child = start_with(&config, std::fs::File::create(&said).unwrap().into());
    // It has read the file that it was started with, and does not get on with it.
    until_said(&said, "registering: ").await;
    std::fs::write(&config, "samplng: {}").unwrap();
    signal(&child, rustix::process::Signal::HUP);
    until_said(&said, "configuration not reloaded").await;
    home.configure(&[gateway.url()], Some(&token));
    signal(&child, rustix::process::Signal::HUP);
    gateway.until_heartbeats(1).await;
    signal(&child, rustix::process::Signal::TERM);
    let (status, _) = stderr(child).await;
    let log = read(&said);
    assert_eq!(status, 0, "{log}");
    for part in [
        "configuration not reloaded",
        "did you mean sampling?",
        "the registration begins anew",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[tokio::test]
async fn wrong_configuration_and_refusals_have_their_own_exit_codes() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let config = home.configure(&[gateway.url()], Some("a.b.c"));
    let config = config.to_str().unwrap();
    assert_eq!(
        code(output(&["config", "check", "--config", config]).await.status),
        0
    );
    // No token at all, and one for another key: nothing is sent, so that nobody has refused it.
    assert_eq!(code(output(&["register", "--config", config]).await.status), 2);
    let other = gateway.token(&Home::new().key.public());
    home.configure(&[gateway.url()], Some(&other));
    for command in ["register", "run"] {
        let out = output(&[command, "--config", config]).await;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(code(out.status), 2, "{command}: {said}");
        assert!(said.contains("agent.registration_token"), "{command}: {said}");
    }
    assert_eq!(gateway.seen().connections, 0, "nothing was connected");
    home.configure(
        &["https://localhost:1".to_owned()],
        Some(&gateway.token(&home.key.public())),
    );
    assert_eq!(
        code(
            output(&["register", "--config", config, "--wait", "300ms"])
                .await
                .status
        ),
        4
    );
    home.configure(&[gateway.url()], None);
    assert_eq!(code(output(&["register", "--config", config]).await.status), 2);
    assert_eq!(code(output(&["run", "--config", config]).await.status), 3);
    std::fs::write(config, "samplng: {}").unwrap();
    let out = output(&["config", "check", "--config", config]).await;
    assert_eq!(code(out.status), 2);
    assert!(String::from_utf8_lossy(&out.stderr).contains("did you mean sampling?"));
    assert_eq!(
        code(
            output(&["config", "check", "--config", "/no/such/file"])
                .await
                .status
        ),
        2
    );
}

#[tokio::test]
async fn a_token_file_that_is_named_and_missing_is_told_where_a_token_is_needed() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let config = home.configure(&[gateway.url()], None);
    let of = config.to_str().unwrap();
    let file = home.path("token");
    let named = format!("agent:\n  registration_token_file: {}\n", file.display());
    let text = read(&config).replace("agent:\n", &named);
    std::fs::write(&config, text).unwrap();
    let missing = format!("{} does not exist", file.display());
    for command in ["register", "run"] {
        let out = output(&[command, "--config", of]).await;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(code(out.status), 2, "{command}: {said}");
        assert!(
            said.contains("agent.registration_token_file") && said.contains(&missing),
            "{command}: {said}"
        );
    }
    let check = async || {
        let out = output(&["config", "check", "--config", of]).await;
        let said = String::from_utf8(out.stdout).unwrap();
        assert_eq!(code(out.status), 0, "{said}");
        said
    };
    let said = check().await;
    assert!(
        said.contains(&format!("note: agent.registration_token_file: {missing}")),
        "{said}"
    );
    let out = output(&["doctor", "--config", of]).await;
    assert!(String::from_utf8_lossy(&out.stdout).contains("(agent.registration_token_file) does not exist"));

    std::fs::write(&file, gateway.token(&home.key.public())).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(!check().await.contains("note:"));
    let out = output(&["register", "--config", of]).await;
    assert_eq!(code(out.status), 0, "{}", String::from_utf8_lossy(&out.stderr));
    // It has done its work.
    std::fs::remove_file(&file).unwrap();
    assert!(!check().await.contains("note:"));
    let said = String::from_utf8(output(&["register", "--config", of]).await.stdout).unwrap();
    assert!(said.starts_with("already registered"), "{said}");
}

#[tokio::test]
async fn a_file_that_config_names_and_that_is_not_there_is_an_error_of_every_command() {
    let state = tempfile::tempdir().unwrap();
    let state = ["--state-dir", state.path().to_str().unwrap()];
    for command in [
        &["status"][..],
        [&["status"][..], &state].concat().as_slice(),
        &["status", "--watch"],
        &["service", "show"],
        [&["service", "show"][..], &state].concat().as_slice(),
        &["inventory"],
        &["register"],
        &["run"],
        &["tasks", "list"],
        &["key", "rotate"],
        &["config", "check"],
    ] {
        let out = output(&[command, &["--config", "/no/such/file"]].concat()).await;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(code(out.status), 2, "{command:?}: {said}");
        assert!(
            said.contains("/no/such/file does not exist"),
            "{command:?}: {said}"
        );
    }
}

/// Ends with 1 and says once why.
async fn into_a_full_disk(arguments: &[&str]) {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = command(arguments);
    let child = child.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let (status, said) = stderr(child).await;
    assert_eq!(status, 1, "{arguments:?}: {said}");
    assert_eq!(
        said.matches("error: standard output: ").count(),
        1,
        "{arguments:?}: {said}"
    );
}

/// Ends as if somebody had read all of it.
async fn into_a_closed_pipe(arguments: &[&str]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command(arguments);
    let child = child.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let (status, said) = stderr(child).await;
    assert_eq!((status, said.as_str()), (0, ""), "{arguments:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_an_error_and_one_that_nobody_reads_is_none() {
    let home = Home::new();
    let config = home.configure(&["https://localhost:1".to_owned()], None);
    let of = config.to_str().unwrap();
    for arguments in [
        &["inventory", "--config", of][..],
        &["config", "check", "--config", of],
        &["config", "schema"],
        &["openapi"],
        &["completion", "bash"],
    ] {
        into_a_full_disk(arguments).await;
        into_a_closed_pipe(arguments).await;
    }
    for arguments in [
        &["status", "--config", of][..],
        &["status", "--watch", "--config", of],
        &["doctor", "--config", of],
    ] {
        into_a_full_disk(arguments).await;
    }
}

/// Ends with 2 and says which key names the file and what helps.
async fn refuses_exposed(arguments: &[&str], key: &str, file: &Path) {
    let out = output(arguments).await;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(code(out.status), 2, "{arguments:?}: {said}");
    let file = file.display();
    for part in [
        format!("{key}: {file} holds a token and is world-readable (mode 644)"),
        format!("chmod 640 {file}"),
    ] {
        assert!(said.contains(&part), "{arguments:?}: {said}");
    }
    let shown = String::from_utf8_lossy(&out.stdout);
    assert!(shown.is_empty(), "{arguments:?}: {shown}");
}

#[tokio::test]
async fn a_token_that_everybody_may_read_is_refused_by_every_command_that_takes_one_before_it_connects() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let token = gateway.token(&home.key.public());
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let commands = [&["run"][..], &["register"], &["config", "check"]];
    // In the configuration.
    let config = home.configure(&[gateway.url()], Some(&token));
    let of = config.to_str().unwrap();
    mode(&config, 0o644);
    for command in commands {
        let arguments = [command, &["--config", of]].concat();
        refuses_exposed(&arguments, "agent.registration_token", &config).await;
    }
    // In a file that it names; the configuration itself may be read by everybody then.
    home.configure(&[gateway.url()], None);
    let file = home.path("token");
    std::fs::write(&file, &token).unwrap();
    let named = format!("agent:\n  registration_token_file: {}\n", file.display());
    let text = read(&config).replace("agent:\n", &named);
    std::fs::write(&config, text).unwrap();
    mode(&config, 0o644);
    mode(&file, 0o644);
    for command in commands {
        let arguments = [command, &["--config", of]].concat();
        refuses_exposed(&arguments, "agent.registration_token_file", &file).await;
    }
    assert_eq!(gateway.seen().connections, 0, "nothing was connected");

    mode(&file, 0o600);
    let out = output(&["register", "--config", of]).await;
    assert_eq!(code(out.status), 0, "{}", String::from_utf8_lossy(&out.stderr));
    let before = gateway.seen().connections;
    let next = home.path("next-token");
    std::fs::write(&next, &token).unwrap();
    mode(&next, 0o644);
    let named = next.to_str().unwrap();
    let rotate = ["key", "rotate", "--config", of, "--token-file", named];
    refuses_exposed(&rotate, "--token-file", &next).await;
    assert_eq!(gateway.seen().connections, before, "nothing was connected");
    assert!(
        !home.path("keys/agent.next.pub").exists(),
        "no key was made for it"
    );
}

#[tokio::test]
async fn a_probe_ends_with_1_where_a_check_fails_and_with_0_where_none_does() {
    let home = Home::new();
    let config = home.configure(&["https://localhost:1".to_owned()], None);
    let (proc, sys) = (home.path("proc"), home.path("sys"));
    for folder in [&proc, &sys] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let roots = format!(
        "agent:\n  roots: {{proc: {}, sys: {}}}\n",
        proc.display(),
        sys.display()
    );
    let text = read(&config).replace("agent:\n", &roots);
    std::fs::write(&config, text).unwrap();
    for (free, status, exit) in [("9000000", "pass", 0), ("1000", "fail", 1)] {
        let text = format!("MemTotal: 9999999 kB\nMemAvailable: {free} kB\n");
        std::fs::write(proc.join("meminfo"), text).unwrap();
        for form in ["text", "json"] {
            let out = output(&["tasks", "probe", "--config", config.to_str().unwrap(), "-o", form]).await;
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            let errors = String::from_utf8_lossy(&out.stderr);
            assert_eq!(code(out.status), exit, "{said} {errors}");
            if form == "json" {
                let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
                let memory = all["checks"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|c| c["check"] == "memory");
                assert_eq!(memory.unwrap()["status"], status);
            }
        }
    }
}

#[tokio::test]
async fn inventory_names_every_figure_with_its_source() {
    let home = Home::new();
    let config = home.configure(&["https://localhost:1".to_owned()], None);
    let out = output(&["inventory", "--config", config.to_str().unwrap(), "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let figure = |name: &str| {
        json["figures"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(figure("uptime seconds")["source"], "/proc/uptime");
    // What is known has an age, and it is of this look.
    for row in json["figures"].as_array().unwrap() {
        assert!(row["source"].as_str().is_some_and(|s| !s.is_empty()), "{row}");
        let age = row["age_ms"].as_u64();
        assert!(
            row["value"].is_null() || age.is_some_and(|ms| ms < 60_000),
            "{row}"
        );
    }
    // The first look is older than the second one, for which utilisation waits.
    let age = |name: &str| figure(name)["age_ms"].as_u64().unwrap();
    assert!(age("uptime seconds") >= 1_000 && age("uptime seconds") > age("CPU busy %"));
    // Nothing runs here that could have measured round trips.
    for name in ["gateway latency µs", "chain latency ms", "peers"] {
        let row = figure(name);
        assert!(row["value"].is_null() && row["age_ms"].is_null(), "{row}");
        assert!(
            row["reason"].as_str().unwrap().starts_with("no agent runs on"),
            "{row}"
        );
    }
    assert!(figure("CPU busy %")["value"].as_u64().unwrap() <= 100);
    assert!(json["capacity"]["memory_gb_total"].as_u64().unwrap() >= 1);
    let text = output(&["inventory", "--config", config.to_str().unwrap()])
        .await
        .stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("/proc/meminfo") && text.contains("absent: no agent runs on"),
        "{text}"
    );
}

#[tokio::test]
async fn inventory_shows_the_round_trips_of_the_agent_that_runs() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let mut child = start_with(&config, Stdio::null());
    let told = |s: &virtengine_node_agent::state::Status| {
        s.gateway_latency_at.is_some() && s.chain.as_ref().is_some_and(|c| c.told_at.is_some())
    };
    until_status(&home, "an answer", told).await;
    let out = output(&["inventory", "--config", config.to_str().unwrap(), "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let row = |name: &str| {
        let mut rows = json["figures"].as_array().unwrap().iter();
        let row = rows.find(|f| f["name"] == name).unwrap();
        assert!(row["age_ms"].as_u64().is_some_and(|ms| ms <= 600_000), "{row}");
        row["value"].as_u64().unwrap_or_else(|| panic!("{row}"))
    };
    assert!(row("gateway latency µs") > 0);
    assert_eq!(row("chain latency ms"), 4);
    signal(&child, rustix::process::Signal::TERM);
    assert_eq!(code(child.wait().await.unwrap()), 0);
}

#[tokio::test]
async fn while_it_waits_for_its_gateway_the_service_manager_hears_that_it_is_up_and_lives() {
    let home = Home::new();
    let token = gateway::Shared::new().token(&home.key.public(), "token-1");
    // Nobody listens there.
    let config = home.configure(&["https://localhost:1".to_owned()], Some(&token));
    let socket = home.path("notify");
    let manager = tokio::net::UnixDatagram::bind(&socket).unwrap();
    let mut child = command(&["run", "--config", config.to_str().unwrap()])
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "400000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    while told.len() < 4 {
        let mut buffer = [0; 256];
        let word = tokio::time::timeout(Duration::from_secs(20), manager.recv(&mut buffer)).await;
        let n = word.expect("it is told in time").unwrap();
        told.push(String::from_utf8_lossy(&buffer[..n]).trim().to_owned());
    }
    assert_eq!(told, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
    signal(&child, rustix::process::Signal::TERM);
    let end = tokio::time::timeout(Duration::from_secs(5), child.wait()).await;
    assert_eq!(code(end.expect("within five seconds").unwrap()), 0);
}

/// Fault 4 of the reference implementation: it counted in memory only, so that after a restart the heartbeats of the next
/// day were refused.
#[tokio::test]
async fn the_sequence_survives_kill_9_and_the_very_next_heartbeat_is_accepted() {
    let gateway = Gateway::start().await;
    // As soon as the agent may.
    gateway.behaviour().next_heartbeat_seconds = 0;
    let home = Home::new();
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let mut before = 0;
    for life in 1..=4 {
        let sent = gateway.seen().heartbeats.len();
        let mut child = command(&["run", "--config", config.to_str().unwrap()])
            .env("VIRTENGINE_AGENT_SHORTEST_MS", "20")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Enough for several blocks of numbers.
        gateway.until_heartbeats(sent + 100).await;
        child.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let seen = gateway.seen();
        // Whoever begins anew at 1 is refused: the gateway is not what forgives here.
        assert!(seen.refusals.is_empty(), "life {life}: {:?}", seen.refusals);
        let first = seen.heartbeats[sent].report.sequence;
        assert!(
            first > before && first <= before + BLOCK + 8,
            "life {life} goes on at {first} after {before}"
        );
        before = *seen.sequences.last().unwrap();
    }
    assert!(before >= 400);
}

/// Kills at random moments of the start, of heartbeats that follow each other by 20 ms, of their answers and of the blocks that
/// are reserved meanwhile: five times `HPC_TEST_RUNS`, which is 1,000 with `scripts/test --full`. `HPC_TEST_SEED` repeats a
/// run.
#[tokio::test]
async fn after_a_kill_heartbeats_are_accepted_at_once_and_no_sequence_number_is_used_twice() {
    let kills: u64 = std::env::var("HPC_TEST_RUNS").map_or(4, |n| n.parse().unwrap()) * 5;
    let gateway = Gateway::start().await;
    {
        let mut behaviour = gateway.behaviour();
        // As soon as the agent may.
        behaviour.next_heartbeat_seconds = 0;
        behaviour.forgets = true;
    }
    let home = Home::new();
    let config = home.configure(&[gateway.url()], Some(&gateway.token(&home.key.public())));
    let register = output(&["register", "--config", config.to_str().unwrap()]).await;
    assert_eq!(code(register.status), 0);
    let mut seed: u64 =
        std::env::var("HPC_TEST_SEED").map_or_else(|_| u64::from(std::process::id()), |s| s.parse().unwrap());
    println!("HPC_TEST_SEED={seed}");
    let mut random = |below: u64| {
        // Knuth's linear congruential generator: repeatable, and good enough to pick moments.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let hurried = || {
        command(&["run", "--config", config.to_str().unwrap()])
            .env("VIRTENGINE_AGENT_SHORTEST_MS", "20")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut highest = 0;
    let (mut runs, mut by_themselves) = (0u64, 0u64);
    // Since the last one that came to a heartbeat.
    let mut starts = 0;
    let (mut start, mut slowest) = (Duration::ZERO, Duration::ZERO);
    let mut killed = 0u64;
    // More of them where the machine is so busy that hardly any comes to a heartbeat by itself.
    while killed < kills || (by_themselves < kills / 10 && killed < 10 * kills) {
        let n = killed;
        (killed, starts) = (killed + 1, starts + 1);
        let (began, before) = (Instant::now(), gateway.seen().sequences.len());
        let mut child = hurried();
        let waited = n.is_multiple_of(10) || starts > 2;
        if waited {
            // This one is let come to its first heartbeat: so long a start takes on this machine now.
            gateway
                .until("heartbeats after a kill", |s| s.sequences.len() > before)
                .await;
            start = began.elapsed();
            slowest = slowest.max(start);
        }
        let window = 2 * u64::try_from(start.as_millis()).unwrap() + 400;
        tokio::time::sleep(Duration::from_millis(random(window))).await;
        child.kill().await.unwrap();
        // What was on its way arrives before the next start.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let sequences = gateway.seen().sequences[before..].to_vec();
        if let Some((first, new)) = sequences.first().zip(sequences.last()) {
            assert!(
                first - highest <= BLOCK * starts + 8,
                "a start skips at most a block (and a few that were on their way), {starts} of them: {highest} to {first}"
            );
            starts = 0;
            runs += 1;
            by_themselves += u64::from(!waited);
            highest = *new;
        }
    }
    let seen = gateway.seen();
    let sent = u64::try_from(seen.sequences.len()).unwrap();
    println!(
        "{killed} kills, {sent} heartbeats, {runs} runs came to one ({by_themselves} by themselves), resumed within {slowest:?}"
    );
    assert!(
        slowest < Duration::from_secs(10),
        "heartbeats resume within one interval"
    );
    assert!(
        by_themselves >= kills / 10,
        "only {by_themselves} of {killed} runs came to a heartbeat by themselves"
    );
    assert!(seen.refusals.is_empty(), "{:?}", seen.refusals);
    assert!(
        seen.sequences.windows(2).all(|w| w[0] < w[1]),
        "{:?}",
        seen.sequences
    );
    let skipped = u64::from(highest) - sent;
    assert!(
        skipped <= u64::from(BLOCK) * (killed + 1),
        "{skipped} numbers were skipped: more than a block a restart"
    );
}

#[test]
fn the_kernel_refuses_what_the_jails_of_tasks_must_not_let_through() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
        .args(["selftest", "--sandbox", "--output", "json"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 5);
    for jail in all {
        let attempts = jail["attempts"].as_array().unwrap();
        let forbidden: Vec<_> = attempts.iter().filter(|a| a["forbidden"] == true).collect();
        assert!(forbidden.len() >= 3 && forbidden.len() < attempts.len(), "{jail}");
        // Whatever kernel this is, it has filters of calls.
        assert_eq!(jail["enforced"]["seccomp"], true, "{jail}");
        for attempt in forbidden.iter().filter(|a| a["by"] == "seccomp") {
            assert!(
                attempt["refusal"].as_str().unwrap().contains("not permitted"),
                "{attempt}"
            );
        }
    }
}
