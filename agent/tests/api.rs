//! The local interface of a running agent, asked by curl as monitoring and people ask it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gateway::{Gateway, Home, NODE, Port, registered};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::Value;
use tokio::process::{Child, Command};

/// An agent as a process with its interface on a port of its own.
struct Node {
    home: Home,
    gateway: Gateway,
    agent: Child,
    port: u16,
    _held: Port,
}

impl Node {
    async fn start(api: impl Fn(&Home, u16) -> String) -> Self {
        let gateway = Gateway::start().await;
        let home = Home::new();
        registered(&gateway, &home).await;
        let held = Port::free();
        let port = held.number();
        let config = home.configure(&[gateway.url()], None);
        let text = std::fs::read_to_string(&config).unwrap();
        let api = api(&home, port);
        std::fs::write(&config, text.replace("api: {listen: 'off'}", &api)).unwrap();
        let agent = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
            .args(["run", "--config"])
            .arg(&config)
            .env_clear()
            .env("NODE_AGENT_QEMU_ACCEL", "kvm")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let node = Self {
            home,
            gateway,
            agent,
            port,
            _held: held,
        };
        node.gateway.until_heartbeats(1).await;
        node
    }

    /// What curl prints, and the status.
    async fn get(&self, scheme: &str, path: &str, arguments: &[&str]) -> (u16, String) {
        let out = Command::new("curl")
            .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "10"])
            .args(["--write-out", "\n%{http_code}"])
            .args(arguments)
            .arg(format!("{scheme}://localhost:{}{path}", self.port))
            .output()
            .await
            .expect("apt-get install curl");
        let text = String::from_utf8(out.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    async fn json(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.get("http", path, &[]).await;
        (
            status,
            serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}")),
        )
    }
}

fn plain(_: &Home, port: u16) -> String {
    format!("api: {{listen: '127.0.0.1:{port}'}}")
}

#[tokio::test]
async fn health_capacity_status_and_metrics_are_told_on_the_loopback() {
    let mut node = Node::start(plain).await;
    // The first heartbeat has arrived; its answer may still be on the way back.
    let start = Instant::now();
    let (mut status, mut ready) = node.json("/readyz").await;
    while status != 200 {
        assert!(start.elapsed() < Duration::from_secs(20), "{ready}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        (status, ready) = node.json("/readyz").await;
    }
    assert_eq!(
        node.json("/healthz").await,
        (200, serde_json::json!({"status": "ok"}))
    );

    let (status, capacity) = node.json("/v1/capacity").await;
    assert_eq!(status, 200);
    assert_eq!(
        (&capacity["host_id"], &capacity["os_family"]),
        (&NODE.into(), &"linux".into())
    );
    assert_eq!(capacity["architecture"], std::env::consts::ARCH);
    assert!(capacity["ram_total_mb"].as_u64().unwrap() >= 256, "{capacity}");
    let number = |key: &str| {
        capacity[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} of {capacity}"))
    };
    assert!(
        number("cpu_free") <= number("cpu_allocatable") && number("cpu_allocatable") <= number("cpu_total")
    );
    assert!(number("ram_free_mb") <= number("ram_allocatable_mb"));
    assert!(capacity["supported_accels"].is_array() && capacity["kernel"].is_string());
    // The wanted accelerator is none of those that were proven: none is selected.
    let supported = capacity["supported_accels"].as_array().unwrap();
    assert_eq!(
        capacity.get("selected_accel").is_some(),
        supported.contains(&"kvm".into())
    );

    let (status, told) = node.json("/v1/status").await;
    assert_eq!(status, 200);
    assert_eq!(told["status"]["node_id"], NODE);
    assert!(told["status"]["accepted"].as_u64().unwrap() >= 1);

    let (status, metrics) = node.get("http", "/metrics", &[]).await;
    assert_eq!(status, 200);
    for name in [
        "node_load1 ",
        "node_memory_MemTotal_bytes ",
        "node_uname_info{",
        "virtengine_agent_heartbeats_accepted_total 1",
        "virtengine_node_health{status=\"draining\"} 0",
        "virtengine_node_capacity{resource=\"cpu_cores\",part=\"total\"}",
    ] {
        assert!(
            metrics.lines().any(|l| l.starts_with(name)),
            "{name} in\n{metrics}"
        );
    }
    let (status, document) = node.json("/openapi.json").await;
    assert_eq!((status, &document["openapi"]), (200, &"3.1.0".into()));

    // A gateway that refuses: not ready, and why.
    node.gateway.behaviour().next_heartbeat_seconds = 10;
    node.agent.start_kill().unwrap();
    node.agent.wait().await.unwrap();
    assert_eq!(
        node.get("http", "/healthz", &[]).await.0,
        0,
        "nobody listens any more"
    );
}

#[tokio::test]
async fn it_is_read_only_and_bounded_in_requests_bytes_connections_and_time() {
    let node = Node::start(plain).await;
    for (path, arguments, expected) in [
        ("/", &[][..], 404),
        ("/v1/capacity/", &[], 404),
        ("/../../etc/passwd", &["--path-as-is"], 404),
        ("/v1/capacity", &["--request", "POST", "--data", "x"], 405),
        ("/v1/capacity", &["--request", "DELETE"], 405),
        ("/healthz", &["--head"], 200),
    ] {
        let (status, body) = node.get("http", path, arguments).await;
        assert_eq!(status, expected, "{path} {arguments:?}: {body}");
    }
    let long = format!("X: {}", "x".repeat(16 << 10));
    let (status, _) = node.get("http", "/healthz", &["--header", &long]).await;
    assert!((400..500).contains(&status), "{status}");

    // Who sends nothing is cut off, and meanwhile others are served.
    let start = Instant::now();
    let mut idle: Vec<TcpStream> = (0..15)
        .map(|_| TcpStream::connect(("127.0.0.1", node.port)).unwrap())
        .collect();
    idle[0].write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    assert_eq!(node.get("http", "/healthz", &[]).await.0, 200);
    let cut = tokio::task::spawn_blocking(move || {
        for stream in &mut idle {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).ok();
        }
    });
    cut.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());

    // A flood is refused, and over in a second or two.
    let flood: Vec<u16> = {
        let config = "url = \"http://localhost:PORT/healthz\"\noutput = \"/dev/null\"\n"
            .replace("PORT", &node.port.to_string())
            .repeat(400);
        let file = node.home.path("flood");
        std::fs::write(&file, config).unwrap();
        let out = Command::new("curl")
            .args([
                "--silent",
                "--noproxy",
                "*",
                "--write-out",
                "%{http_code}\n",
                "--config",
            ])
            .arg(&file)
            .output()
            .await
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines().map(|l| l.parse().unwrap()).collect()
    };
    let (good, refused) = (
        flood.iter().filter(|s| **s == 200).count(),
        flood.iter().filter(|s| **s == 429).count(),
    );
    assert!(
        good >= 20 && refused >= 1 && good + refused == flood.len(),
        "{flood:?}"
    );
    let start = Instant::now();
    while node.get("http", "/healthz", &[]).await.0 != 200 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// CA, server's and client's certificate as files.
struct Papers {
    ca: PathBuf,
    server: (PathBuf, PathBuf),
}

impl Papers {
    fn make(home: &Home) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "site");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let put = |name: &str, text: &str| {
            let path = home.path(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let issue = |name: &str, usage| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            let certificate = params.signed_by(&key, &ca).unwrap();
            (
                put(&format!("{name}.crt"), &certificate.pem()),
                put(&format!("{name}.key"), &key.serialize_pem()),
            )
        };
        issue("api-client", ExtendedKeyUsagePurpose::ClientAuth);
        Self {
            server: issue("api-server", ExtendedKeyUsagePurpose::ServerAuth),
            ca: put("api-ca.crt", &ca.pem()),
        }
    }
}

const TOKEN: &str = "kXo2b1nBq0c8fQ7ZtP";

/// Section `api` for an address that others reach, guarded by what is named.
fn outside(home: &Home, port: u16, guards: &[&str]) -> String {
    let papers = Papers::make(home);
    let token = home.path("api-token");
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let has = |guard: &str| guards.contains(&guard);
    let mut parts = vec![format!("listen: '0.0.0.0:{port}'")];
    if has("token") {
        parts.push(format!("token_file: {}", token.display()));
    }
    if has("tls") {
        let (cert, key) = (papers.server.0.display(), papers.server.1.display());
        let ca = match has("client_ca") {
            true => format!(", client_ca: {}", papers.ca.display()),
            false => String::new(),
        };
        parts.push(format!("tls: {{cert: {cert}, key: {key}{ca}}}"));
    }
    format!("api: {{{}}}", parts.join(", "))
}

/// Asks from outside by each way: with which answers. 0 is none at all.
async fn answers(node: &Node) -> [u16; 6] {
    let at = |name: &str| node.home.path(name).display().to_string();
    let (ca, cert, key) = (at("api-ca.crt"), at("api-client.crt"), at("api-client.key"));
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let (good, wrong) = (bearer(TOKEN), bearer("kXo2b1nBq0c8fQ7ZtX"));
    let trust = ["--cacert", ca.as_str()];
    let mine = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    let mut got = [0; 6];
    for (got, (scheme, arguments)) in got.iter_mut().zip([
        ("http", vec!["--header", good.as_str()]),
        ("https", trust.to_vec()),
        ("https", [&trust[..], &["--header", &wrong]].concat()),
        ("https", [&trust[..], &["--header", &good]].concat()),
        ("https", mine.to_vec()),
        ("https", [&mine[..], &["--header", &good]].concat()),
    ]) {
        // Nothing is told to whoever may not know, on no path.
        for path in ["/metrics", "/v1/status", "/healthz"] {
            let (status, body) = node.get(scheme, path, &arguments).await;
            assert!(status == 200 || !body.contains(NODE), "{scheme} {path}: {body}");
            *got = status;
        }
    }
    got
}

#[tokio::test]
async fn from_outside_a_token_alone_serves_over_tls() {
    let node = Node::start(|home, port| outside(home, port, &["tls", "token"])).await;
    // Whoever has the token; a client's certificate is neither asked for nor enough.
    assert_eq!(answers(&node).await, [0, 401, 401, 200, 401, 200]);
}

#[tokio::test]
async fn from_outside_a_clients_certificate_alone_serves() {
    let node = Node::start(|home, port| outside(home, port, &["tls", "client_ca"])).await;
    // Whoever has a certificate of the CA; a token is neither asked for nor enough.
    assert_eq!(answers(&node).await, [0, 0, 0, 0, 200, 200]);
    // One of another CA is none.
    let stranger = Home::new();
    Papers::make(&stranger);
    let at = |home: &Home, name: &str| home.path(name).display().to_string();
    let (cert, key) = (at(&stranger, "api-client.crt"), at(&stranger, "api-client.key"));
    let ca = at(&node.home, "api-ca.crt");
    let foreign = ["--cacert", ca.as_str(), "--cert", &cert, "--key", &key];
    assert_eq!(node.get("https", "/healthz", &foreign).await.0, 0);
}

#[tokio::test]
async fn from_outside_both_are_wanted_where_both_are_set() {
    let node = Node::start(|home, port| outside(home, port, &["tls", "client_ca", "token"])).await;
    assert_eq!(answers(&node).await, [0, 0, 0, 0, 401, 200]);
}

#[tokio::test]
async fn an_address_for_others_without_tls_or_without_a_guard_is_refused_at_the_start() {
    let gateway = Gateway::start().await;
    let home = Home::new();
    registered(&gateway, &home).await;
    let config = home.configure(&[gateway.url()], None);
    let text = std::fs::read_to_string(&config).unwrap();
    for (guards, remedy) in [
        (&[][..], "api.tls.cert"),
        // A token in the clear is everybody's.
        (&["token"], "api.tls.cert"),
        (&["tls"], "api.token_file or api.tls.client_ca"),
    ] {
        let held = Port::free();
        let port = held.number();
        std::fs::write(
            &config,
            text.replace("api: {listen: 'off'}", &outside(&home, port, guards)),
        )
        .unwrap();
        for verb in [&["run"][..], &["config", "check"]] {
            let out = Command::new(env!("CARGO_BIN_EXE_virtengine-node-agent"))
                .args(verb)
                .arg("--config")
                .arg(&config)
                .env_clear()
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output();
            let out = tokio::time::timeout(Duration::from_secs(20), out);
            let out = out.await.expect("it does not start").unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.code(), Some(2), "{guards:?} {verb:?}: {said}");
            assert!(
                said.contains("api.listen") && said.contains(remedy) && !said.contains(TOKEN),
                "{guards:?} {verb:?}: {said}"
            );
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        }
    }
    assert!(gateway.seen().heartbeats.is_empty());
}
