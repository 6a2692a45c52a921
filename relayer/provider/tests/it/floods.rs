//! Hosts that open too much, say nothing, or never end: refused, logged once, the rest served on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use virtengine_provider::clock;
use virtengine_provider::config::{Config, Span};

use crate::agent::{Agent, client, problem};
use crate::logs::Logs;
use crate::raw;
use crate::site::{Site, eventually};

fn addr(site: &Site) -> SocketAddr {
    site.daemon.as_ref().unwrap().gateway_addr()
}

/// It stands in the log once, however often it happened.
fn logged_once(logs: &Logs, what: &str) {
    let lines = logs.lines(&format!("refused: {what}; "));
    assert_eq!(lines.len(), 1, "{what}: {lines:#?}");
}

/// Whether the other side has closed, which it has not if nothing comes for a while.
async fn closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0; 1];
    matches!(
        timeout(Duration::from_millis(50), stream.read(&mut byte)).await,
        Ok(Ok(0) | Err(_))
    )
}

/// Lets this process have so many files open. Where it may not, the test fails: with fewer it would show less than it says.
fn allow_files(wanted: u64) {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|may| may >= wanted) {
        return;
    }
    // Beyond the hard limit with root's rights alone.
    let more = Rlimit {
        current: Some(wanted),
        maximum: now.maximum.map(|most| most.max(wanted)),
    };
    if let Err(e) = setrlimit(Resource::Nofile, more) {
        panic!(
            "{wanted} open files are needed, and this process may not have them ({now:?}): {e}. Remedy: raise its hard \
             limit (ulimit -Hn)"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_opens_ten_thousand_idle_connections_pushes_out_its_own_and_nodes_get_in() {
    let (logs, _logging) = Logs::start();
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.max_anonymous_per_address = 32;
    config.gateway.max_anonymous = 64;
    // Longer than the test: nothing but the budget can make room.
    config.gateway.handshake_timeout = Span::seconds(60);
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let mut idle = Vec::new();
    // Each is a file of this process. So is the gateway's end of it, until that is closed for a newer one, and what the tests
    // beside this one have open: a few hundred.
    let all = 10_000;
    allow_files(all + 2_000);
    for _ in 0..all {
        idle.push(TcpStream::connect(addr(&site)).await.unwrap());
    }
    let began = Instant::now();
    for sequence in 1..=5 {
        // A connection of its own each time.
        assert!(agent.beat(&agent.client(&site), &site, sequence).await.accepted);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    eventually("all but the newest are closed", async || {
        let mut open = 0;
        for stream in &mut idle {
            open += usize::from(!closed(stream).await);
            if open > 32 {
                return false;
            }
        }
        open <= 32
    })
    .await;
    let evicted = site.evicted().await;
    assert!(evicted >= all - 64, "{evicted}");
    logged_once(
        &logs,
        "more connections without a certificate that counts than it may have",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_does_not_end_and_a_stranger_that_says_nothing_are_closed_in_time() {
    let (logs, _logging) = Logs::start();
    // As long as an honest handshake may take on a slow machine.
    let limit = |c: &mut Config| c.gateway.handshake_timeout = Span::seconds(2);
    let (site, agent) = Agent::enrolled_before(limit).await;
    for sequence in 1..=3 {
        let mut silent = TcpStream::connect(addr(&site)).await.unwrap();
        let mut shaken = raw::tls(&site, None).await;
        let mut byte = [0; 1];
        let ended = timeout(Duration::from_secs(20), silent.read(&mut byte)).await;
        assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
        let ended = timeout(Duration::from_secs(20), shaken.read(&mut byte)).await;
        assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
        assert!(agent.beat(&agent.client(&site), &site, sequence).await.accepted);
    }
    logged_once(&logs, "a TLS handshake that does not end in time");
    logged_once(&logs, "no request came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_comes_byte_by_byte_is_cut_off_even_of_a_node() {
    let (logs, _logging) = Logs::start();
    let limit = |c: &mut Config| c.gateway.header_timeout = Span::seconds(2);
    let (site, agent) = Agent::enrolled_before(limit).await;
    for identity in [None, Some((agent.certificate.as_str(), &agent.tls))] {
        let mut slow = raw::tls(&site, identity).await;
        let began = Instant::now();
        let cut = loop {
            assert!(began.elapsed() < Duration::from_secs(30), "still open");
            if slow.write_all(b"x").await.is_err() || slow.flush().await.is_err() {
                break began.elapsed();
            }
            let mut byte = [0; 1];
            let read = timeout(Duration::from_millis(100), slow.read(&mut byte)).await;
            if matches!(read, Ok(Ok(0) | Err(_))) {
                break began.elapsed();
            }
        };
        assert!(cut >= Duration::from_millis(1700), "{cut:?}");
    }
    logged_once(&logs, "a request's head did not end in time");
    // Silence between requests is no slow head.
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    sleep(Duration::from_secs(4)).await;
    assert!(agent.beat(&client, &site, 2).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_byte_by_byte_is_answered_with_a_timeout_and_the_connection_ends() {
    let (logs, _logging) = Logs::start();
    let limit = |c: &mut Config| c.gateway.request_timeout = Span::seconds(2);
    let (site, agent) = Agent::enrolled_before(limit).await;
    for sequence in 1..=2 {
        a_slow_body(&site, &agent).await;
        assert!(agent.beat(&agent.client(&site), &site, sequence).await.accepted);
    }
    logged_once(&logs, "a body that does not end in time");
}

async fn a_slow_body(site: &Site, agent: &Agent) {
    let mut slow = raw::tls(site, Some((agent.certificate.as_str(), &agent.tls))).await;
    let head = "POST /api/v1/hpc/nodes/node-0001/heartbeat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n";
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.flush().await.unwrap();
    let began = Instant::now();
    let mut answer = Vec::new();
    loop {
        assert!(began.elapsed() < Duration::from_secs(30), "still open");
        let mut bytes = [0; 1024];
        match timeout(Duration::from_millis(100), slow.read(&mut bytes)).await {
            Ok(Ok(read)) if read > 0 => answer.extend_from_slice(&bytes[..read]),
            Ok(_) => break,
            Err(_) => {
                // Whether the other side still wants it shows when it is read next.
                drop(slow.write_all(b" ").await);
                drop(slow.flush().await);
            }
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_opens_connection_after_connection_keeps_only_its_newest() {
    let site = Site::start().await;
    let (greedy, other) = (
        Agent::enrolled(&site, "node-0001").await,
        Agent::enrolled(&site, "node-0002").await,
    );
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(raw::tls(&site, Some((&greedy.certificate, &greedy.tls))).await);
    }
    let mut first = open.remove(0);
    let mut byte = [0; 1];
    let ended = timeout(Duration::from_secs(20), first.read(&mut byte)).await;
    assert_eq!(ended.expect("closed by the gateway").unwrap_or(0), 0);
    assert!(other.beat(&other.client(&site), &site, 1).await.accepted);
    assert!(greedy.beat(&greedy.client(&site), &site, 1).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_push_each_other_out_are_said_to_with_the_key_that_makes_room() {
    let (logs, _logging) = Logs::start();
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.max_connections = 2;
    site.start_with(config).await;
    let mut nodes = Vec::new();
    for node in ["node-0001", "node-0002", "node-0003"] {
        nodes.push(Agent::enrolled(&site, node).await);
    }
    let told = || logs.lines("raise gateway.max_connections");
    // Each holds on to its connection.
    let clients = [0, 0, 1, 2].map(|of| (&nodes[of], nodes[of].client(&site)));
    let mut said = Vec::new();
    for (sequence, (agent, client)) in (1..).zip(&clients) {
        assert!(agent.beat(client, &site, sequence).await.accepted);
        said.push(told().len());
    }
    // Once, and not for each that follows.
    assert_eq!(said, [0, 0, 1, 1]);
    let line = &told()[0];
    assert!(
        line.contains(" WARN ") && line.contains("node=node-0001"),
        "{line}"
    );
    assert!(line.contains("newcomer=node-0002"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_headers_and_compressed_bodies_are_refused_with_a_code() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let url = format!("{}/api/v1/hpc/nodes/node-0001/heartbeat", site.gateway());
    let mut request = client.post(&url);
    for i in 0..80 {
        request = request.header(format!("x-{i}"), "a");
    }
    let many = request.body("{}").send().await.unwrap();
    assert_eq!(problem(many).await, (431, "body_too_large".into()));
    let long = client.post(&url).header("x-long", "a".repeat(20_000)).body("{}");
    assert_eq!(
        problem(long.send().await.unwrap()).await,
        (431, "body_too_large".into())
    );
    // Beyond what is read at all: the bare status, and the connection ends.
    let flood = client
        .post(&url)
        .header("x-long", "a".repeat(200_000))
        .body("{}")
        .send()
        .await;
    assert!(flood.is_err() || flood.unwrap().status() == 431);
    // A bomb is refused by its name, unread.
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let bomb = client
            .post(&url)
            .header("content-encoding", encoding)
            .body(vec![0; 60_000]);
        assert_eq!(
            problem(bomb.send().await.unwrap()).await,
            (415, "malformed".into())
        );
    }
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_too_often_loses_the_connection_and_gets_to_know_when_to_come_back() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.requests_per_minute = 6;
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let body = || agent.heartbeat_text(1, clock::now_ms());
    let mut last = None;
    for _ in 0..8 {
        let response = agent.send_text(&client, &site, body()).await;
        if response.status() == 429 {
            last = Some(response);
            break;
        }
    }
    let refused = last.expect("refused at last");
    assert_eq!(refused.headers()["connection"], "close");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(problem(refused).await, (429, "rate_limited".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_still_sends_what_nobody_wants_gets_the_answer_and_keeps_the_connection() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let node = async || raw::tls(&site, Some((agent.certificate.as_str(), &agent.tls))).await;
    let paths = [
        ("POST", "/api/v1/hpc/nodes/node-0001/what", 404),
        ("PATCH", "/internal/v1/nodes/node-0001/tasks/t-1/progress", 405),
        ("POST", "/api/v1/hpc/nodes/%ff/certificate", 400),
        (
            "GET",
            "/internal/v1/nodes/node-0001/tasks/wait?wait_seconds=x",
            400,
        ),
        ("POST", "/api/v1/hpc/nodes/node-0002/heartbeat", 403),
        ("POST", "/api/v1/hpc/nodes/node-0001/heartbeat", 400),
    ];
    sent_in_two(node, &paths).await;
    let admin = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let paths = [
        ("POST", "/api/v1/admin/nothing", 404),
        ("PATCH", "/api/v1/admin/nodes", 405),
        // Whoever shows no credential that counts gets the answer, and no more on this connection.
        ("GET", "/api/v1/admin/nodes", 401),
    ];
    sent_in_two(async || TcpStream::connect(admin).await.unwrap(), &paths).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_in_chunks_or_after_leave_to_send_it_is_taken_and_one_too_large_is_told_so() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let head = |more: &str| {
        format!(
            "POST /api/v1/hpc/nodes/node-0001/heartbeat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n"
        )
    };
    let asked = async |parts: &[String]| {
        let mut stream = raw::tls(&site, Some((agent.certificate.as_str(), &agent.tls))).await;
        for part in parts {
            stream.write_all(part.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        let mut answer = Vec::new();
        let read = timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await;
        // The other side need not say goodbye in TLS.
        drop(read.unwrap());
        String::from_utf8(answer).unwrap()
    };
    let chunks = |body: &str| {
        let (first, rest) = body.split_at(body.len() / 2);
        let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
        [
            head("transfer-encoding: chunked\r\n"),
            chunk(first),
            chunk(rest),
            "0\r\n\r\n".to_owned(),
        ]
    };
    let taken = |answer: &str| answer.contains("HTTP/1.1 200 ") && answer.contains("\"accepted\":true");
    let answer = asked(&chunks(&agent.heartbeat_text(1, clock::now_ms()))).await;
    assert!(taken(&answer), "{answer}");

    let waits = |length: usize| head(&format!("expect: 100-continue\r\ncontent-length: {length}\r\n"));
    let body = agent.heartbeat_text(2, clock::now_ms());
    let answer = asked(&[waits(body.len()), body]).await;
    assert!(answer.starts_with("HTTP/1.1 100 ") && taken(&answer), "{answer}");

    // No leave is given for what is too large, and what comes all the same is heard to its end.
    let large = "x".repeat(70_000);
    for parts in [vec![waits(large.len())], chunks(&large).to_vec()] {
        let answer = asked(&parts).await;
        assert!(
            answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"),
            "{answer}"
        );
    }
}

/// Each request's body comes a moment after its head, as some clients send it, on one connection.
async fn sent_in_two<S: AsyncRead + AsyncWrite + Unpin>(
    connect: impl AsyncFn() -> S,
    paths: &[(&str, &str, u16)],
) {
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let mut stream = connect().await;
        let mut wrong = None;
        for path in paths {
            let began = Instant::now();
            wrong = one_in_two(&mut stream, path).await.err();
            slowest = began.elapsed();
            if wrong.is_some() {
                break;
            }
        }
        match wrong {
            None => return,
            // A machine that stood still for about a second: the gateway waits no longer.
            Some(_) if slowest > Duration::from_millis(800) => {}
            Some(wrong) => panic!("{wrong}"),
        }
    }
    panic!("this machine is too slow: {slowest:?}");
}

async fn one_in_two(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    (method, path, status): &(&str, &str, u16),
) -> Result<(), String> {
    let body = "x".repeat(50_000);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let broken = |e: std::io::Error| format!("{path}: {e}");
    stream.write_all(head.as_bytes()).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    sleep(Duration::from_millis(30)).await;
    stream.write_all(body.as_bytes()).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let mut answer = String::new();
    loop {
        let mut bytes = [0; 4096];
        let read = timeout(Duration::from_secs(30), stream.read(&mut bytes)).await;
        let read = read.map_err(|e| e.to_string())?.map_err(broken)?;
        if read == 0 {
            return Err(format!("{path}: closed after {answer:?}"));
        }
        answer.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.unwrap().parse().unwrap() {
            break;
        }
    }
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{path}: {answer}"
    );
    assert!(answer.contains("\"code\""), "{path}: {answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_a_problem_with_a_code() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let open = client(&site.ca(), None);
    let mutual = agent.client(&site);
    let base = format!("{}/api/v1/hpc/nodes", site.gateway());
    for (path, status) in [
        ("/%ff/heartbeat", 400),
        ("/%ff/certificate", 400),
        ("/%ff/certificate/challenge", 400),
        ("/%ff/certificate/recover", 400),
        ("/%00/certificate/challenge", 400),
        ("/nobody/what", 404),
        ("/node-0001/heartbeat", 403),
    ] {
        let refused = open
            .post(format!("{base}{path}"))
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(refused.headers()["connection"], "close", "{path}");
        assert_eq!(problem(refused).await.0, status, "{path}");
    }
    for (path, status) in [("/%ff/heartbeat", 400), ("/node-0002/heartbeat", 403)] {
        let refused = mutual
            .post(format!("{base}{path}"))
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(problem(refused).await.0, status, "{path}");
    }
    let refused = mutual
        .get(format!("{base}/node-0001/heartbeat"))
        .send()
        .await
        .unwrap();
    assert_eq!(problem(refused).await, (405, "malformed".into()));
}

/// What keeps the store from writing: a disk without room for the intake journal, another that writes for PostgreSQL.
enum Full {
    Disk(std::path::PathBuf),
    Held(Box<virtengine_provider::db::Transaction>),
}

impl Full {
    /// From a start with this configuration on.
    async fn begins(site: &mut Site, config: Config) -> Self {
        site.stop_daemon().await;
        let store = site.store().await;
        if store.is_shared() {
            site.start_with(config).await;
            return Self::Held(Box::new(store.begin().await.unwrap()));
        }
        store.close().await;
        let journal = site
            .home()
            .join("store")
            .join(virtengine_provider::spool::JOURNAL);
        std::fs::remove_file(&journal).unwrap();
        std::os::unix::fs::symlink("/dev/full", &journal).unwrap();
        site.start_with(config).await;
        Self::Disk(journal)
    }

    async fn ends(self) {
        match self {
            Self::Disk(journal) => std::fs::remove_file(journal).unwrap(),
            Self::Held(tx) => tx.rollback().await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_store_cannot_write_the_answer_is_unavailable_and_not_the_nodes_fault() {
    let mut site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let mut config = site.config();
    config.gateway.request_timeout = Span::seconds(2);
    let full = Full::begins(&mut site, config).await;
    let body = agent.heartbeat_text(1, clock::now_ms());
    let refused = agent.send_text(&client, &site, body).await;
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(problem(refused).await, (503, "unavailable".into()));
    full.ends().await;
    eventually("accepted again", async || {
        agent.beat(&client, &site, 2).await.accepted || agent.beat(&client, &site, 3).await.accepted
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listener_of_health_and_metrics_closes_what_says_nothing_and_holds_few_connections() {
    let mut site = Site::prepare().await;
    let config = site.config();
    site.start_with(config).await;
    let ops = site.daemon.as_ref().unwrap().ops_addr();
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(ops).await.unwrap());
    }
    eventually("what is beyond the cap is closed", async || {
        let mut open = 0;
        for stream in &mut idle {
            open += usize::from(!closed(stream).await);
        }
        open <= 64
    })
    .await;
    eventually(
        "the idle ones are closed in time and it answers again",
        async || {
            let asked = async {
                let mut stream = TcpStream::connect(ops).await.ok()?;
                let head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                stream.write_all(head).await.ok()?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.ok()?;
                answer.starts_with("HTTP/1.1 200").then_some(())
            };
            asked.await.is_some()
        },
    )
    .await;
}
