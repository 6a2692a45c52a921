//! Another version of the agent, ordered by the provider: real processes, a real download server, a stand-in for the
//! service manager that starts what has ended.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod gateway;

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake2::{Blake2b512, Digest};
use gateway::{Authority, Gateway, Home, Signed, read};
use hpc_schema::command::{Acknowledgement, AcknowledgementStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use virtengine_node_agent::clock::Clock;
use virtengine_node_agent::fault::UPDATE;
use virtengine_node_agent::key::NodeKey;
use virtengine_node_agent::register::register;
use virtengine_node_agent::update::platform;

const AGENT: &str = env!("CARGO_BIN_EXE_virtengine-node-agent");
const KEY_ID: [u8; 8] = *b"release1";

/// A program that says another version and is this agent otherwise.
fn good(version: &str) -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'virtengine-node-agent {version}' && exit\nexec {AGENT} \"$@\"\n"
    )
}

/// One that says its version and then does not work.
fn broken(version: &str) -> String {
    format!("#!/bin/sh\n[ \"$1\" = --version ] && echo 'virtengine-node-agent {version}' && exit\nexit 1\n")
}

fn release_key() -> NodeKey {
    NodeKey::from_seed([9; 32]).unwrap()
}

/// A minisign signature file, as `minisign -S` writes it.
fn minisign(key: &NodeKey, text: &[u8]) -> String {
    let signature = key.sign(&Blake2b512::digest(text));
    let comment = "release";
    let global = key.sign(&[signature.as_slice(), comment.as_bytes()].concat());
    let first = [b"ED".as_slice(), &KEY_ID, &signature].concat();
    format!(
        "untrusted comment: test\n{}\ntrusted comment: {comment}\n{}\n",
        STANDARD.encode(first),
        STANDARD.encode(global)
    )
}

/// Files by path, over HTTPS.
struct Downloads {
    port: u16,
    ca: String,
    files: Arc<std::sync::Mutex<HashMap<String, Vec<u8>>>>,
}

impl Downloads {
    async fn start() -> Self {
        let authority = Authority::new();
        let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&authority, &Clock::system()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let files: Arc<std::sync::Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
        let shared = Arc::clone(&files);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, files) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(tcp).await.unwrap();
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let head = String::from_utf8(head).unwrap();
                    let path = head.split(' ').nth(1).unwrap().to_owned();
                    let body = files.lock().unwrap().get(&path).cloned();
                    let (status, body) = body.map_or(("404 Not Found", Vec::new()), |b| ("200 OK", b));
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all(head.as_bytes()).await.unwrap();
                    stream.write_all(&body).await.unwrap();
                    stream.shutdown().await.ok();
                });
            }
        });
        Self {
            port,
            ca: authority.pem(),
            files,
        }
    }

    /// Offers a program; returns the parameters of an order for it.
    fn offer(&self, version: &str, program: &str, signer: &NodeKey) -> String {
        let sha256 = hex::encode(sha2::Sha256::digest(program.as_bytes()));
        let manifest = serde_json::json!({
            "name": "virtengine-node-agent", "version": version, "platform": platform(),
            "size": program.len(), "sha256": sha256,
        });
        let manifest = manifest.to_string();
        let path = format!("/{version}/agent");
        let mut files = self.files.lock().unwrap();
        files.insert(path.clone(), program.as_bytes().to_vec());
        files.insert(
            format!("{path}.manifest.json.minisig"),
            minisign(signer, manifest.as_bytes()).into_bytes(),
        );
        files.insert(format!("{path}.manifest.json"), manifest.into_bytes());
        let url = format!("https://localhost:{}{path}", self.port);
        serde_json::json!({"version": version, "url": url, "sha256": sha256}).to_string()
    }
}

struct Site {
    gateway: Gateway,
    home: Home,
    downloads: Downloads,
}

impl Site {
    async fn start() -> Self {
        let gateway = Gateway::start().await;
        let home = Home::new();
        let token = gateway.token(&home.key.public());
        let config = home.config(&[gateway.url()], Some(&token));
        register(&config, &home.key, Some(Duration::from_secs(10)), |_| {})
            .await
            .unwrap();
        let downloads = Downloads::start().await;
        fs::write(home.path("downloads.pem"), &downloads.ca).unwrap();
        Self {
            gateway,
            home,
            downloads,
        }
    }

    fn configure(&self) -> PathBuf {
        let path = self.home.configure(&[self.gateway.url()], None);
        let public = [b"Ed".as_slice(), &KEY_ID, release_key().public().as_bytes()].concat();
        let more = format!(
            "update:\n  release_key: {}\n  ca_file: {}\n",
            STANDARD.encode(public),
            self.home.path("downloads.pem").display()
        );
        fs::write(&path, read(&path) + &more).unwrap();
        path
    }

    fn spawn(&self) -> tokio::process::Child {
        self.spawn_to_die_at(None)
    }

    /// Kills itself when it comes to that step.
    fn spawn_to_die_at(&self, step: Option<&str>) -> tokio::process::Child {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.home.path("agent.log"))
            .unwrap();
        tokio::process::Command::new(AGENT)
            .args(["run", "--config", self.configure().to_str().unwrap()])
            .env_clear()
            .envs(step.map(|s| ("VIRTENGINE_AGENT_FAULT", s)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn tell(&self, id: &str, parameters: &str) {
        let order = Signed {
            // Not before the journal of the agent that is started next.
            issued: 5,
            ..Signed::new(id, "update_agent", parameters)
        };
        self.gateway.behaviour().commands.push(order.command());
    }

    /// Runs until the order has ended, starting what ends as a service manager does; also says how often it did.
    async fn outcome(&self, id: &str) -> (Acknowledgement, u32) {
        let starts = AtomicU32::new(0);
        let serve = async {
            loop {
                starts.fetch_add(1, Ordering::Relaxed);
                self.spawn().wait().await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let ended = |a: &&Acknowledgement| a.command_id == id && a.status != AcknowledgementStatus::Accepted;
        let heard = self
            .gateway
            .until(id, |s| s.acknowledgements.iter().any(|a| ended(&a)));
        tokio::select! {
            () = serve => panic!("never ends"),
            () = heard => {}
        }
        let ack = self.gateway.seen().acknowledgements.iter().find(ended).cloned();
        (ack.unwrap(), starts.load(Ordering::Relaxed))
    }

    /// What the disk had not been told to keep is lost: half of each file that has not got its name.
    fn cut_the_power(&self) {
        let versions = self.home.path("state/versions");
        let half = versions.join(".new");
        let files = [&versions, &half].map(|f| fs::read_dir(f).into_iter().flatten().flatten());
        for path in files.into_iter().flatten().map(|e| e.path()) {
            let nameless = path.starts_with(&half) || path.extension().is_some_and(|e| e == "tmp");
            if nameless && path.is_file() {
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            }
        }
    }

    fn log(&self) -> String {
        read(&self.home.path("agent.log"))
    }

    /// The version that is to run, if it is not the installed one, and whether it has proven itself.
    fn current(&self) -> Option<(String, bool)> {
        let text = fs::read_to_string(self.home.path("state/versions/state.json")).ok()?;
        let state: serde_json::Value = serde_json::from_str(&text).unwrap();
        let current = state.get("current")?;
        Some((
            current["version"].as_str().unwrap().to_owned(),
            current["proven"].as_bool().unwrap(),
        ))
    }
}

#[tokio::test]
async fn a_signed_newer_version_takes_over_in_the_same_process_and_stays() {
    let site = Site::start().await;
    let order = site.downloads.offer("9.9.9", &good("9.9.9"), &release_key());
    site.tell("u", &order);
    let (ack, starts) = site.outcome("u").await;
    assert_eq!(
        (ack.status, ack.detail.as_deref(), starts),
        (AcknowledgementStatus::Done, Some("version 9.9.9 runs"), 1),
        "{}",
        site.log()
    );
    assert_eq!(site.current(), Some(("9.9.9".to_owned(), true)));
    // The next start hands over at once; an older release is then a step back.
    let older = site.downloads.offer("9.9.8", &good("9.9.8"), &release_key());
    site.tell("back", &older);
    let (ack, _) = site.outcome("back").await;
    assert_eq!(ack.status, AcknowledgementStatus::Refused, "{ack:?}");
    assert!(ack.detail.unwrap().contains("not newer than 9.9.9"));
    // No sequence number was used twice, and the node was never reported offline in between.
    let seen = site.gateway.seen();
    assert!(
        seen.sequences.windows(2).all(|w| w[0] < w[1]),
        "{:?}",
        seen.sequences
    );
}

#[tokio::test]
async fn what_the_release_key_did_not_sign_is_never_started() {
    let site = Site::start().await;
    let another = NodeKey::from_seed([8; 32]).unwrap();
    let witness = site.home.path("started");
    let evil = format!("#!/bin/sh\ntouch {}\n", witness.display());
    site.tell("forged", &site.downloads.offer("9.9.1", &evil, &another));
    let (ack, _) = site.outcome("forged").await;
    assert_eq!(ack.status, AcknowledgementStatus::Failed, "{ack:?}");
    assert!(ack.detail.unwrap().contains("not signed by update.release_key"));
    // A program that is not the one of the manifest.
    let order = site.downloads.offer("9.9.2", &good("9.9.2"), &release_key());
    let padded = format!("{evil}{}", "#".repeat(good("9.9.2").len() - evil.len()));
    site.downloads
        .files
        .lock()
        .unwrap()
        .insert("/9.9.2/agent".to_owned(), padded.into_bytes());
    site.tell("swapped", &order);
    let (ack, _) = site.outcome("swapped").await;
    assert!(ack.detail.unwrap().contains("another SHA-256"));
    // One that was altered on this disk, after it was taken.
    site.tell(
        "good",
        &site.downloads.offer("9.9.3", &good("9.9.3"), &release_key()),
    );
    assert_eq!(site.outcome("good").await.0.status, AcknowledgementStatus::Done);
    let program = site.home.path("state/versions/9.9.3/virtengine-node-agent");
    fs::write(&program, evil).unwrap();
    let heartbeats = site.gateway.seen().heartbeats.len();
    let child = site.spawn();
    site.gateway
        .until("heartbeats of the installed program", |s| {
            s.heartbeats.len() > heartbeats
        })
        .await;
    drop(child);
    assert!(!witness.exists(), "{}", site.log());
    assert_eq!(site.current(), None);
}

#[tokio::test]
async fn a_version_that_does_not_work_gives_way_to_the_one_before() {
    let site = Site::start().await;
    site.tell(
        "u",
        &site.downloads.offer("9.9.9", &broken("9.9.9"), &release_key()),
    );
    let (ack, starts) = site.outcome("u").await;
    assert_eq!(
        ack.status,
        AcknowledgementStatus::Failed,
        "{ack:?}\n{}",
        site.log()
    );
    assert!(ack.detail.unwrap().contains("was taken back"));
    // The one that handed over, its second start, and the installed program again.
    assert_eq!(starts, 3, "{}", site.log());
    assert_eq!(site.current(), None);
}

/// One step: the power is cut there, and then the agent is started as a service manager does.
async fn cut_at(step: &'static str) {
    let site = Site::start().await;
    let order = site.downloads.offer("9.9.9", &good("9.9.9"), &release_key());
    site.tell("u", &order);
    let mut agent = site.spawn_to_die_at(Some(step));
    let died = tokio::time::timeout(Duration::from_secs(60), agent.wait()).await;
    let died = died.unwrap_or_else(|_| panic!("{step} was never come to: {}", site.log()));
    assert_eq!(died.unwrap().signal(), Some(9), "{step}: {}", site.log());
    site.cut_the_power();
    let (ack, starts) = site.outcome("u").await;
    assert_eq!(
        (ack.status, ack.detail.as_deref(), starts),
        (AcknowledgementStatus::Done, Some("version 9.9.9 runs"), 1),
        "{step}: {}",
        site.log()
    );
    assert_eq!(site.current(), Some(("9.9.9".to_owned(), true)), "{step}");
    let seen = site.gateway.seen();
    let ends = seen
        .acknowledgements
        .iter()
        .filter(|a| a.status != AcknowledgementStatus::Accepted);
    assert!(ends.clone().all(|a| *a == ack), "{step}: {ends:?}");
    assert!(seen.sequences.windows(2).all(|w| w[0] < w[1]), "{step}");
    let left: Vec<_> = fs::read_dir(site.home.path("state/versions"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .filter(|n| n != "9.9.9" && n != "state.json")
        .collect();
    assert!(left.is_empty(), "{step}: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_power_is_cut_the_version_runs_after_the_next_start() {
    for steps in UPDATE.chunks(3) {
        let mut under_way = tokio::task::JoinSet::new();
        for step in steps {
            under_way.spawn(cut_at(step));
        }
        while let Some(ended) = under_way.join_next().await {
            ended.unwrap();
        }
    }
}

#[tokio::test]
async fn killed_at_any_step_the_update_ends_once_and_the_agent_runs() {
    let site = Site::start().await;
    let order = site.downloads.offer("9.9.9", &good("9.9.9"), &release_key());
    site.tell("u", &order);
    // From before the first heartbeat to after the hand-over.
    for millis in [150, 300, 450, 600, 800, 1000, 1300, 1600, 2000] {
        let mut child = site.spawn();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        child.kill().await.unwrap();
    }
    let (ack, _) = site.outcome("u").await;
    let ended: Vec<Acknowledgement> = site
        .gateway
        .seen()
        .acknowledgements
        .iter()
        .filter(|a| a.status != AcknowledgementStatus::Accepted)
        .cloned()
        .collect();
    assert!(ended.iter().all(|a| *a == ack), "{ended:?}");
    // Kills can use up its starts: then it is taken back, and says so.
    match ack.status {
        AcknowledgementStatus::Done => assert_eq!(site.current(), Some(("9.9.9".to_owned(), true))),
        AcknowledgementStatus::Failed => assert!(ack.detail.unwrap().contains("taken back")),
        _ => panic!("{ack:?}"),
    }
}
