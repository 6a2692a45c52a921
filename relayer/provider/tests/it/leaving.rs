//! Nodes that leave while they are answered, or send on.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;
use virtengine_provider::clock;

use crate::agent::Agent;
use crate::raw;
use crate::site::{Site, eventually};

const WAITS: &str =
    "GET /internal/v1/nodes/node-0001/tasks/wait?wait_seconds=SECONDS HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn connect(site: &Site, agent: &Agent) -> TlsStream<TcpStream> {
    raw::tls(site, Some((agent.certificate.as_str(), &agent.tls))).await
}

async fn send(stream: &mut TlsStream<TcpStream>, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

fn head(length: usize) -> String {
    format!(
        "POST /api/v1/hpc/nodes/node-0001/heartbeat HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A heartbeat's head and body.
fn heartbeat(agent: &Agent, sequence: u32) -> (String, String) {
    let body = agent.heartbeat_text(sequence, clock::now_ms());
    (head(body.len()), body)
}

async fn open(site: &Site) -> u64 {
    site.metric("virtengine_provider_connections").await
}

/// A node without a connection, at a gateway that has no other.
async fn alone() -> (Site, Agent) {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    eventually("other connections are gone", async || open(&site).await == 0).await;
    (site, agent)
}

/// All that comes until `answers` answers, which are JSON, have begun and the last is read, or the end.
async fn hear(stream: &mut TlsStream<TcpStream>, answers: usize) -> String {
    let mut heard = String::new();
    let hearing = async {
        let mut bytes = [0; 4096];
        while heard.matches("HTTP/1.1 ").count() < answers || !is_whole(&heard) {
            match stream.read(&mut bytes).await {
                Ok(read) if read > 0 => heard.push_str(std::str::from_utf8(&bytes[..read]).unwrap()),
                _ => break,
            }
        }
    };
    timeout(Duration::from_secs(30), hearing)
        .await
        .expect("an answer or the end");
    heard
}

/// Whether the last answer is there as far as it says.
fn is_whole(heard: &str) -> bool {
    let last = heard.rsplit("HTTP/1.1 ").next().unwrap();
    let Some((head, body)) = last.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    body.len() >= length
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_while_it_waits_keeps_no_connection_whether_it_says_goodbye_or_not() {
    let (site, agent) = alone().await;
    for goodbye in [true, false] {
        let mut stream = connect(&site, &agent).await;
        send(&mut stream, &WAITS.replace("SECONDS", "120")).await;
        eventually("it waits", async || open(&site).await == 1).await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!(open(&site).await, 1);
        if goodbye {
            stream.shutdown().await.unwrap();
            assert_eq!(hear(&mut stream, 1).await, "");
        }
        drop(stream);
        // Within a minute: long before its wait is over.
        eventually("it has left", async || open(&site).await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_early_is_told_so_however_its_parts_come() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    // Also one that takes many reads.
    for (pause, room) in [(0, 0), (50, 0), (0, 50_000), (50, 50_000)] {
        let mut stream = connect(&site, &agent).await;
        let body = agent.heartbeat_text(1, clock::now_ms()) + &" ".repeat(room);
        let head = head(body.len());
        let (half, _) = body.split_at(body.len() / 2);
        stream.write_all((head + half).as_bytes()).await.unwrap();
        if pause > 0 {
            stream.flush().await.unwrap();
            sleep(Duration::from_millis(pause)).await;
        }
        stream.shutdown().await.unwrap();
        let answer = hear(&mut stream, 1).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.contains("ends before its length"),
            "{pause} {room}: {answer}"
        );
    }
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_sent_while_one_is_answered_are_answered_in_their_order() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let mut stream = connect(&site, &agent).await;
    send(&mut stream, &WAITS.replace("SECONDS", "1")).await;
    for sequence in 1..=2 {
        sleep(Duration::from_millis(50)).await;
        let (head, body) = heartbeat(&agent, sequence);
        send(&mut stream, &(head + &body)).await;
    }
    let heard = hear(&mut stream, 3).await;
    let places: Vec<_> = ["\"sequence_ack\":1", "\"sequence_ack\":2"]
        .iter()
        .map(|ack| heard.find(ack).unwrap_or_else(|| panic!("{ack}: {heard}")))
        .collect();
    assert!(
        heard.starts_with("HTTP/1.1 204 ") && places.is_sorted(),
        "{heard}"
    );
    assert_eq!(heard.matches("\"accepted\":true").count(), 2, "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_with_its_heartbeat_whole_keeps_no_connection_and_its_next_one_is_taken() {
    let (site, agent) = alone().await;
    for (sequence, goodbye) in [(1, true), (2, false)] {
        let mut stream = connect(&site, &agent).await;
        let (head, body) = heartbeat(&agent, sequence);
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        if goodbye {
            stream.shutdown().await.unwrap();
        } else {
            stream.flush().await.unwrap();
        }
        drop(stream);
        eventually("it has left", async || open(&site).await == 0).await;
    }
    assert!(agent.beat(&agent.client(&site), &site, 3).await.accepted);
}
