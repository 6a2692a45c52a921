//! `node watch` on a terminal and elsewhere.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::agent::Agent;
use crate::site::Site;

fn watch(site: &Site, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_virtengine-provider"))
        .args(["node", "watch", "--every", "200ms", "--home"])
        .arg(site.home())
        .args(args)
        .envs(site.env())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(mut child: Child) -> i32 {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait().unwrap().code().unwrap_or(-1)
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_renews_one_screen_on_a_terminal_and_writes_a_document_a_line_elsewhere() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    // A pipe: one document a line, the newest state in each.
    let mut child = watch(&site, &["-o", "json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first[0]["node_id"], "node-0001");
    assert!(agent.beat(&client, &site, 2).await.accepted);
    let newer = lines
        .by_ref()
        .take(200)
        .map(|l| serde_json::from_str::<Value>(&l.unwrap()).unwrap());
    assert!(newer.into_iter().any(|v| v[0]["last_received"] == 2));
    // Read on, or the writer waits for the pipe instead of the signal.
    std::thread::spawn(move || lines.for_each(drop));
    assert_eq!(interrupt(child), 0);
    // Whoever reads has seen enough.
    for format in [["-o", "json"], ["-o", "yaml"], ["-o", "text"]] {
        let mut child = watch(&site, &format);
        let first = BufReader::new(child.stdout.take().unwrap()).lines().next();
        assert!(!first.unwrap().unwrap().is_empty(), "{format:?}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format:?}");
    }
    // A terminal of 60 columns.
    let program = env!("CARGO_BIN_EXE_virtengine-provider");
    let home = site.home();
    let watching = format!(
        "stty cols 60 rows 10; exec '{program}' node watch --every 200ms --home '{}'",
        home.display()
    );
    let mut terminal = Command::new("script")
        .args([
            "--quiet",
            "--flush",
            "--return",
            "--command",
            &watching,
            "/dev/null",
        ])
        .envs(site.env())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script (bsdutils) is needed");
    let mut screen = terminal.stdout.take().unwrap();
    let mut seen = String::new();
    let mut bytes = [0; 4096];
    while seen.matches("\x1b[H").count() < 4 {
        let n = screen.read(&mut bytes).unwrap();
        assert!(n > 0, "{seen:?}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    std::thread::spawn(move || while screen.read(&mut bytes).is_ok_and(|n| n > 0) {});
    // Ctrl-C, as it is typed.
    let mut keys = terminal.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    assert_eq!(terminal.wait().unwrap().code(), Some(0));
    // The cursor is hidden, the screen cleared once, then written over.
    assert!(seen.starts_with("\x1b[?25l\x1b[2J\x1b[H"), "{seen:?}");
    assert_eq!(seen.matches("\x1b[2J").count(), 1);
    assert!(
        seen.contains("node-0001") && seen.contains("nodes: 1"),
        "{seen:?}"
    );
    for line in seen.split("\x1b[K\r\n") {
        let text = line
            .replace("\x1b[?25l", "")
            .replace("\x1b[2J", "")
            .replace("\x1b[H", "")
            .replace("\x1b[J", "");
        assert!(text.chars().count() <= 60, "{text:?}");
    }
}
