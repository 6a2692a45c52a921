//! The rows of the troubleshooting tables, provoked: what `doctor`, `status` and the log say of each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gateway::{Gateway, Home, NODE, now, registered};
use hpc_schema::code::Code;
use hpc_schema::node::NodeState;
use hpc_schema::token::{TokenClaims, encode_token};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use virtengine_node_agent::key::NodeKey;

fn command(arguments: &[&str], config: &Path) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"));
    c.args(arguments)
        .arg("--config")
        .arg(config)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    c
}

async fn json(arguments: &[&str], config: &Path) -> (i32, Value) {
    let mut all = arguments.to_vec();
    all.extend(["--output", "json"]);
    let out = command(&all, config).output().await.unwrap();
    let said = serde_json::from_slice(&out.stdout);
    let value = said.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
    (out.status.code().unwrap(), value)
}

/// The check with this code, as `doctor` gives it.
fn check<'a>(doctor: &'a Value, code: &str) -> &'a Value {
    let all = doctor["checks"].as_array().unwrap();
    all.iter()
        .find(|c| c["code"] == code)
        .unwrap_or_else(|| panic!("no {code} in {doctor:#}"))
}

fn is_wrong(doctor: &Value, code: &str) {
    let c = check(doctor, code);
    assert_eq!(c["grade"], "wrong", "{c}");
    assert!(!c["remedy"].as_str().unwrap().is_empty(), "{c}");
}

/// Both `doctor` and `status` call it wrong, with a remedy, and their exit codes say so.
async fn told_by_both(config: &Path, accel: Option<&str>, code: &str) {
    for verb in ["doctor", "status"] {
        let mut c = command(&[verb, "--output", "json"], config);
        if let Some(accel) = accel {
            c.env("NODE_AGENT_QEMU_ACCEL", accel);
        }
        let out = c.output().await.unwrap();
        let said: Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|e| panic!("{verb}: {e}: {}", String::from_utf8_lossy(&out.stderr)));
        assert_eq!(out.status.code(), Some(1), "{verb}: {said:#}");
        if verb == "doctor" {
            is_wrong(&said, code);
            continue;
        }
        let told = |p: &Value| p["code"] == code && !p["remedy"].as_str().unwrap().is_empty();
        let all = said["problems"].as_array().unwrap();
        assert!(all.iter().any(told), "{code} in {said:#}");
        assert_eq!(said["healthy"], false);
    }
}

/// Waits until `status` names this trouble.
async fn until_told(config: &Path, code: &str) {
    let start = Instant::now();
    loop {
        let (exit, status) = json(&["status"], config).await;
        let told = |p: &Value| p["code"] == code && !p["remedy"].as_str().unwrap().is_empty();
        if status["problems"].as_array().unwrap().iter().any(told) {
            assert_eq!(exit, 1);
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{code} in {status:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn token(gateway: &Gateway, home: &Home, by: Option<&NodeKey>, life: i64) -> String {
    let claims = TokenClaims {
        iss: "test-gateway".into(),
        sub: NODE.parse().unwrap(),
        cluster_id: gateway::CLUSTER.parse().unwrap(),
        provider_address: None,
        pubkey: home.key.public(),
        jti: "token-x".into(),
        iat: now(),
        exp: hpc_schema::time::UnixSeconds(now().0.saturating_add_signed(life)),
        ca_sha256: gateway.shared.authority.fingerprint(),
        chain_id: gateway::CHAIN.into(),
        contract: gateway::CONTRACT.into(),
        task_key: None,
        endpoint: None,
    };
    let key = by.unwrap_or(&gateway.shared.token_key);
    encode_token(&claims, |m| Ok::<_, std::convert::Infallible>(key.sign(m))).unwrap()
}

#[tokio::test]
async fn before_the_registration_doctor_tells_of_token_key_gateway_interval_and_accelerator() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    let good = token(&gateway, &home, None, 3600);
    let config = home.configure(&[gateway.url()], Some(&good));
    let (exit, doctor) = json(&["doctor"], &config).await;
    assert_eq!((exit, &doctor["healthy"]), (0, &Value::Bool(true)), "{doctor:#}");
    for code in ["key", "gateway", "clock", "memory_figure", "interval"] {
        assert_eq!(check(&doctor, code)["grade"], "good", "{doctor:#}");
    }
    // Text for people names them all.
    let out = command(&["doctor"], &config).output().await.unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.contains("nothing is wrong") && text.contains("clock"),
        "{text}"
    );

    home.configure(&[gateway.url()], Some(&token(&gateway, &home, None, -60)));
    told_by_both(&config, None, "token_expired").await;

    let other = gateway.token(&NodeKey::from_seed([3; 32]).unwrap().public());
    home.configure(&[gateway.url()], Some(&other));
    told_by_both(&config, None, "key_mismatch").await;

    home.configure(&["https://127.0.0.1:1".into()], Some(&good));
    is_wrong(&json(&["doctor"], &config).await.1, "gateway");

    home.configure(&[gateway.url()], None);
    told_by_both(&config, None, "registered").await;

    home.configure(&[gateway.url()], Some(&good));
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("base_interval: 10s", "base_interval: 2m")).unwrap();
    told_by_both(&config, None, "interval_not_below_timeout").await;

    home.configure(&[gateway.url()], Some(&good));
    let mut doctor = command(&["doctor", "--output", "json"], &config);
    let out = doctor.env("NODE_AGENT_QEMU_ACCEL", "kvm").output().await.unwrap();
    let doctor: Value = serde_json::from_slice(&out.stdout).unwrap();
    let accel = check(&doctor, "accel");
    assert!(
        accel["grade"] == "good"
            || accel["message"]
                .as_str()
                .unwrap()
                .contains("not supported by host"),
        "{accel}"
    );

    std::fs::write(&config, "provider_daemon: {endpont: x}\n").unwrap();
    is_wrong(&json(&["doctor"], &config).await.1, "config");
}

#[tokio::test]
async fn a_state_of_another_node_than_the_configured_one_starts_no_agent_and_is_told() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    registered(&gateway, &home).await;
    let config = home.configure(&[gateway.url()], None);
    let text = std::fs::read_to_string(&config).unwrap();
    let named = |node: &str| std::fs::write(&config, format!("{text}node: {{{node}}}\n")).unwrap();
    for (other, said) in [
        ("id: node-b".to_owned(), "node.id is node-b"),
        (
            format!("id: {NODE}, cluster_id: elsewhere"),
            "node.cluster_id is elsewhere",
        ),
    ] {
        named(&other);
        told_by_both(&config, None, "identity_mismatch").await;
        let notes = json(&["config", "check"], &config).await.1["notes"].to_string();
        assert!(notes.contains(said), "{notes}");
        for verb in ["register", "run"] {
            let mut ended = command(&[verb], &config);
            let ended = tokio::time::timeout(Duration::from_secs(30), ended.output());
            let out = ended.await.expect("it ends").unwrap();
            let log = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(2), "{verb}: {log}");
            assert!(
                log.contains(said) && log.contains("registered as"),
                "{verb}: {log}"
            );
        }
    }
    assert!(gateway.seen().heartbeats.is_empty());
    named(&format!("id: {NODE}, cluster_id: {}", gateway::CLUSTER));
    let mut agent = start(&config);
    gateway.until_heartbeats(1).await;
    agent.kill().await.unwrap();
}

#[tokio::test]
async fn a_probe_port_that_has_changed_since_the_registration_is_told_until_it_is_put_back() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    let registration = registered(&gateway, &home).await;
    assert_eq!(registration.probe_port, Some(9461));
    let config = home.configure(&[gateway.url()], None);
    let text = std::fs::read_to_string(&config).unwrap();
    let port = |port: u16| std::fs::write(&config, format!("{text}probe: {{port: {port}}}\n")).unwrap();
    for changed in [9500, 0] {
        port(changed);
        told_by_both(&config, None, "probe_port_changed").await;
    }
    port(9461);
    let doctor = json(&["doctor"], &config).await.1;
    assert_eq!(check(&doctor, "probe_port")["grade"], "good", "{doctor:#}");
    // A registration of an older agent says nothing of it.
    let file = home.path("state/registration.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept.as_object_mut().unwrap().remove("probe_port").unwrap();
    std::fs::write(&file, kept.to_string()).unwrap();
    port(9500);
    let doctor = json(&["doctor"], &config).await.1;
    assert_eq!(check(&doctor, "probe_port")["grade"], "skipped", "{doctor:#}");
}

#[tokio::test]
async fn an_address_for_probes_is_registered_and_another_one_told_until_it_is_put_back() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    let config = home.configure(&[gateway.url()], Some(&token(&gateway, &home, None, 3600)));
    let text = std::fs::read_to_string(&config).unwrap();
    let told = |probe: &str| std::fs::write(&config, format!("{text}{probe}")).unwrap();
    told("probe: {advertise_address: 198.51.100.7}\n");
    let out = command(&["register"], &config).output().await.unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let request = gateway.seen().registrations.last().unwrap().clone();
    assert_eq!(request["probe_address"], "198.51.100.7", "{request:#}");
    let good = async || {
        let doctor = json(&["doctor"], &config).await.1;
        assert_eq!(check(&doctor, "probe_address")["grade"], "good", "{doctor:#}");
    };
    good().await;
    for changed in ["probe: {advertise_address: 198.51.100.8}\n", ""] {
        told(changed);
        told_by_both(&config, None, "probe_address_changed").await;
    }
    // Registered without one, it is the one that the gateway sees.
    let file = home.path("state/registration.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept.as_object_mut().unwrap().remove("probe_address").unwrap();
    std::fs::write(&file, kept.to_string()).unwrap();
    good().await;
    told("probe: {advertise_address: 198.51.100.7}\n");
    told_by_both(&config, None, "probe_address_changed").await;
    // Nobody asks a node that answers no probes.
    told("probe: {port: 0, advertise_address: 198.51.100.7}\n");
    let doctor = json(&["doctor"], &config).await.1;
    assert_eq!(check(&doctor, "probe_address")["grade"], "skipped", "{doctor:#}");
}

fn start(config: &Path) -> Child {
    command(&["run"], config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_refused_registration_is_logged_with_its_body_and_told_by_status() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    // Signed by somebody else: the gateway alone can tell.
    let forged = token(&gateway, &home, Some(&NodeKey::from_seed([5; 32]).unwrap()), 3600);
    let config = home.configure(&[gateway.url()], Some(&forged));
    let out = start(&config).wait_with_output().await.unwrap();
    let log = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(3), "{log}");
    assert!(
        log.contains("refused the registration")
            && log.contains("status=401")
            && log.contains("\"code\":\"token_invalid\""),
        "{log}"
    );
    until_told(&config, "token_invalid").await;
    // Whatever else a gateway says to it: 401, 404 and 422 with their bodies.
    let good = token(&gateway, &home, None, 3600);
    home.configure(&[gateway.url()], Some(&good));
    for (status, code) in [
        (401, Code::TokenUsed),
        (401, Code::TokenExpired),
        (401, Code::KeyMismatch),
        (404, Code::UnknownNode),
        (404, Code::UnknownCluster),
        (422, Code::InvalidField),
        (422, Code::InvalidCapacity),
    ] {
        gateway.behaviour().refuse_registration.extend([(status, code)]);
        let out = start(&config).wait_with_output().await.unwrap();
        let log = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(3), "{code}: {log}");
        assert!(
            log.contains(&format!("status={status}")) && log.contains("told to"),
            "{log}"
        );
        until_told(&config, code.as_str()).await;
    }
}

#[tokio::test]
async fn a_node_that_waits_a_gateway_of_another_ca_and_a_host_that_withholds_are_told() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    let good = token(&gateway, &home, None, 3600);
    // Somebody else's gateway, at the right place.
    let another = Gateway::start().await;
    let config = home.configure(&[another.url()], Some(&good));
    is_wrong(&json(&["doctor"], &config).await.1, "tls_failed");
    // A running agent tells of it too: it waits, and sends its token to nobody.
    let mut agent = start(&config);
    until_told(&config, "not_registered").await;
    let said = json(&["status"], &config).await.1.to_string();
    assert!(said.contains("the token pins the gateway's CA"), "{said}");
    agent.kill().await.unwrap();
    assert!(another.seen().registrations.is_empty());
    // Not registered yet, and who it waits for.
    let config = home.configure(&[gateway.url()], Some(&good));
    (gateway.behaviour().pending_answers, gateway.behaviour().approval) = (1000, true);
    let mut agent = start(&config);
    until_told(&config, "not_registered").await;
    agent.kill().await.unwrap();

    // A tree without the kernel's figures, a /dev/kvm that is root's alone, a host that nobody here may switch off.
    let dev = home.path("dev");
    std::fs::create_dir_all(&dev).unwrap();
    std::fs::write(dev.join("kvm"), "").unwrap();
    std::fs::set_permissions(
        dev.join("kvm"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let d = home.dir.path().display();
    let text = std::fs::read_to_string(&config).unwrap().replace(
        "agent:\n",
        &format!("commands: {{shutdown: host, helper: {d}/helper.sock}}\nagent:\n  roots: {{proc: {d}/none, dev: {d}/dev}}\n"),
    );
    std::fs::write(&config, text).unwrap();
    let root = rustix::process::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(home.path("state"), Some(4242), Some(4242)).unwrap();
    } else {
        std::fs::set_permissions(
            dev.join("kvm"),
            std::os::unix::fs::PermissionsExt::from_mode(0o000),
        )
        .unwrap();
    }
    let (exit, doctor) = json(&["doctor"], &config).await;
    assert_eq!(exit, 1);
    is_wrong(&doctor, "memory_figure");
    is_wrong(&doctor, "shutdown_rights");
    let kvm = check(&doctor, "kvm_permission");
    assert!(
        kvm["grade"] == "note" && kvm["remedy"].as_str().unwrap().contains("chgrp kvm"),
        "{kvm}"
    );
    let notes = json(&["status"], &config).await.1["notes"].clone();
    let noted = |c: &Value| c["code"] == "kvm_permission";
    assert!(notes.as_array().unwrap().iter().any(noted), "{notes}");
    // `status` says so too, and its exit code with it.
    until_told(&config, "shutdown_rights").await;
    until_told(&config, "memory_figure").await;
}

#[tokio::test]
async fn a_host_that_has_not_run_with_an_accelerator_is_told_that_it_does_not_support_it() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    let good = token(&gateway, &home, None, 3600);
    let config = home.configure(&[gateway.url()], Some(&good));
    let tasks = home.path("tasks");
    std::fs::create_dir_all(&tasks).unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}tasks: {{dir: {}}}\n", tasks.display())).unwrap();
    let seen = |works: bool| {
        let one = serde_json::json!({"works": works, "detail": "x", "took_ms": 1, "at": 1});
        let kept = serde_json::json!({"key": "k", "seen": {"kvm": one, "tcg": one}});
        std::fs::write(tasks.join("accel.json"), kept.to_string()).unwrap();
    };
    let accel = async |wanted: &str| {
        let mut doctor = command(&["doctor", "--output", "json"], &config);
        let out = doctor
            .env("NODE_AGENT_QEMU_ACCEL", wanted)
            .output()
            .await
            .unwrap();
        serde_json::from_slice::<Value>(&out.stdout).unwrap()
    };
    seen(false);
    told_by_both(&config, Some("kvm"), "accel").await;
    let doctor = accel("kvm").await;
    let said = check(&doctor, "accel")["message"].as_str().unwrap();
    assert!(
        said.starts_with("selected_accel kvm not supported by host"),
        "{said}"
    );
    let qemu = format!("/usr/bin/qemu-system-{}", std::env::consts::ARCH);
    if Path::new(&qemu).exists() {
        seen(true);
        let doctor = accel("kvm").await;
        assert_eq!(check(&doctor, "accel")["grade"], "good", "{doctor:#}");
    }
}

#[tokio::test]
async fn what_becomes_of_heartbeats_is_told_with_codes_and_bodies() {
    let (gateway, home) = (Gateway::start().await, Home::new());
    registered(&gateway, &home).await;
    let config = home.configure(&[gateway.url()], None);
    gateway.behaviour().next_heartbeat_seconds = 10;
    gateway.behaviour().http_errors.extend([422]);
    let mut agent = start(&config);
    gateway
        .until("a refusal", |_| gateway.behaviour().http_errors.is_empty())
        .await;
    until_told(&config, Code::RateLimited.as_str()).await;
    agent.start_kill().unwrap();
    let out = agent.wait_with_output().await.unwrap();
    let log = String::from_utf8(out.stderr).unwrap();
    assert!(log.contains("status=422") && log.contains("told to"), "{log}");
    until_told(&config, "not_running").await;

    for (code, state) in [
        (Code::NodeDisabled.as_str(), NodeState::Active),
        (Code::ClusterInactive.as_str(), NodeState::Pending),
    ] {
        gateway.behaviour().node_state = state;
        if let Some(refusal) = Code::from_word(code).filter(|_| state == NodeState::Active) {
            gateway.behaviour().refuse.extend([refusal]);
        }
        let mut agent = start(&config);
        until_told(&config, code).await;
        agent.kill().await.unwrap();
    }
    // Off by more than a minute.
    gateway.behaviour().node_state = NodeState::Active;
    gateway.behaviour().clock_offset = 90;
    let mut agent = start(&config);
    until_told(&config, "clock_skew").await;
    // Watched, one picture after the other.
    let mut watch = command(&["status", "--watch"], &config);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = watch.stdout.take().unwrap();
    let mut text = String::new();
    let twice = async {
        while text.matches("not healthy").count() < 2 {
            let mut part = [0; 4096];
            let n = shown.read(&mut part).await.unwrap();
            assert!(n > 0, "it ends: {text}");
            text.push_str(&String::from_utf8_lossy(&part[..n]));
        }
    };
    let twice = tokio::time::timeout(Duration::from_secs(30), twice).await;
    assert!(twice.is_ok(), "{text}");
    watch.start_kill().unwrap();
    agent.kill().await.unwrap();
}
