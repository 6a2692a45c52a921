//! The daemon as a service: what its manager hears, and how it ends.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hpc_schema::gateway::heartbeat_path;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use virtengine_provider::clock;

use crate::agent::Agent;
use crate::process::{Process, beat};
use crate::raw;
use crate::site::{Site, eventually};

/// A service manager's ear.
struct Manager(UnixDatagram);

impl Manager {
    /// What is said, for so long or until it is this.
    fn hears(&self, within: Duration, until: Option<&str>) -> Vec<String> {
        let (end, mut said) = (Instant::now() + within, Vec::new());
        while let Some(left) = end
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
        {
            self.0.set_read_timeout(Some(left)).unwrap();
            let mut bytes = [0; 4096];
            let Ok(n) = self.0.recv(&mut bytes) else { break };
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            said.extend(text.lines().map(str::to_owned));
            if said.last().is_some_and(|s| Some(s.as_str()) == until) {
                break;
            }
        }
        said
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_hears_that_it_is_up_and_works_and_a_stop_ends_what_is_under_way() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    site.stop_daemon().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let socket = path.display().to_string();
    // A watchdog of three seconds is told every second.
    let env = [("NOTIFY_SOCKET", socket.as_str()), ("WATCHDOG_USEC", "3000000")];
    let mut process = Process::start_with(&site, None, &env);
    site.elsewhere = Some(process.port);
    let soon = Duration::from_secs(20);
    let said = manager.hears(soon, Some("READY=1"));
    assert_eq!(said, ["READY=1"], "nothing before it");
    for _ in 0..3 {
        let said = manager.hears(soon, Some("WATCHDOG=1"));
        assert_eq!(said, ["WATCHDOG=1"]);
    }
    let client = agent.client(&site);
    assert!(beat(&agent, &client, process.port, 1).await);

    // A store that takes no writes is no daemon that works, and one that takes them again is.
    // One on another machine is not mended by a restart.
    let store = site.store().await;
    if !store.is_shared() {
        let held = store.begin().await.unwrap();
        manager.hears(Duration::from_secs(3), None);
        let said = manager.hears(Duration::from_secs(4), None);
        assert!(said.is_empty(), "{said:?}");
        held.rollback().await.unwrap();
        assert_eq!(manager.hears(soon, Some("WATCHDOG=1")), ["WATCHDOG=1"]);
    }

    // A request that has begun is answered, its report durable, though the signal came first.
    let mut under_way = raw::tls(&site, Some((&agent.certificate, &agent.tls))).await;
    let body = agent.heartbeat_text(2, clock::now_ms());
    let path = heartbeat_path(&agent.node.parse().unwrap());
    let (first, rest) = body.split_at(100);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{first}",
        body.len()
    );
    under_way.write_all(head.as_bytes()).await.unwrap();
    under_way.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let stopped = Instant::now();
    kill_process(Pid::from_child(&process.child), Signal::TERM).unwrap();
    let said = manager.hears(soon, Some("STOPPING=1"));
    assert!(said.contains(&"STOPPING=1".to_owned()), "{said:?}");
    // As long as its budgets are, whatever the unit's limit is.
    let stop = site.config().stop;
    let budgets = stop.intake.duration() + stop.settlement.duration();
    let longer = said.iter().find_map(|s| s.strip_prefix("EXTEND_TIMEOUT_USEC="));
    let longer = Duration::from_micros(longer.unwrap().parse().unwrap());
    assert!(longer > budgets, "{longer:?}");
    under_way.write_all(rest.as_bytes()).await.unwrap();
    under_way.flush().await.unwrap();
    let mut answer = Vec::new();
    drop(under_way.read_to_end(&mut answer).await);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"accepted\":true"),
        "{answer}"
    );
    let mut code = None;
    eventually("the end", async || {
        code = process.child.try_wait().unwrap();
        code.is_some()
    })
    .await;
    assert!(code.unwrap().success(), "{code:?}");
    // Budgets: ten seconds for requests, as configured five for settlement, and the rest.
    assert!(
        stopped.elapsed() < Duration::from_secs(25),
        "{:?}",
        stopped.elapsed()
    );
    // What had no time to go out does so at the next start.
    let process = Process::start(&site, None);
    site.elsewhere = Some(process.port);
    site.wait_sequence(&agent.node, 2).await;
}

/// What the daemon says from its start to its end, in this form.
fn says(site: &Site, format: &str) -> Vec<String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_virtengine-provider"))
        .arg("run")
        .arg("--home")
        .arg(site.home())
        .envs(site.env())
        .env("VIRTENGINE_PROVIDER__LOG__FORMAT", format)
        .env(
            "VIRTENGINE_PROVIDER__LOG__LEVEL",
            "info,virtengine_provider=debug",
        )
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().unwrap().contains("virtengine-provider is up") {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
    }
    assert!(child.wait().unwrap().success(), "{said:#?}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_the_log_is_json_or_plain_text_as_configured() {
    let site = Site::prepare().await;
    let json = tokio::task::block_in_place(|| says(&site, "json"));
    for line in &json {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(
            value["timestamp"].is_string() && value["message"].is_string(),
            "{line}"
        );
        assert!(
            value["level"]
                .as_str()
                .is_some_and(|l| "ERROR WARN INFO DEBUG".contains(l)),
            "{line}"
        );
    }
    let text = tokio::task::block_in_place(|| says(&site, "text"));
    for line in &text {
        assert!(!line.starts_with('{') && !line.contains('\u{1b}'), "{line}");
    }
    for said in [&json, &text] {
        assert!(said.last().unwrap().contains("stopped"), "{said:#?}");
    }
}
