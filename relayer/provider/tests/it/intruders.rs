use std::time::{Duration, Instant};

use hpc_schema::time::UnixSeconds;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use virtengine_provider::clock;
use virtengine_provider::config::Span;
use virtengine_provider::identity::{Ca, NodeCsr};

use crate::agent::{Agent, client, csr, problem};
use crate::site::{Site, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn intruders_are_turned_away_and_the_rest_is_served_on() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let other = Agent::enrolled(&site, "node-0002").await;
    let body = || agent.heartbeat_text(1, clock::now_ms());
    let mismatch = (403, "identity_mismatch".to_owned());

    let nobody = client(&site.ca(), None);
    assert_eq!(
        problem(agent.send_text(&nobody, &site, body()).await).await,
        mismatch,
        "no certificate"
    );
    let another = other.client(&site);
    assert_eq!(
        problem(agent.send_text(&another, &site, body()).await).await,
        mismatch,
        "another node's"
    );
    // The other node's certificate with a body that names this one, on its own path.
    let url = format!("{}/api/v1/hpc/nodes/node-0002/heartbeat", site.gateway());
    let swapped = another.post(url).body(body()).send().await.unwrap();
    assert_eq!(problem(swapped).await, mismatch, "another node's body");

    let url = format!("{}/api/v1/hpc/nodes/node-0001/heartbeat", site.gateway());
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let request = NodeCsr::from_pem(&csr(&key)).unwrap();
    let (foreign, _) = Ca::create(clock::now(), [9; 16]).unwrap();
    let node = "node-0001".parse().unwrap();
    let forged = foreign
        .issue_node(&request, &cluster(), &node, clock::now(), 3600, [1; 16])
        .unwrap();
    let forger = client(&site.ca(), Some((&forged.pem, &key)));
    assert!(
        forger.post(&url).body(body()).send().await.is_err(),
        "a foreign CA's certificate"
    );

    let ours = std::fs::read_to_string(site.home().join("ca/ca.key")).unwrap();
    let ours = Ca::from_pem(&site.ca(), &ours).unwrap();
    let past = UnixSeconds(clock::now().0 - 7200);
    let expired = ours
        .issue_node(&request, &cluster(), &node, past, 60, [2; 16])
        .unwrap();
    let late = client(&site.ca(), Some((&expired.pem, &key)));
    assert!(
        late.post(&url).body(body()).send().await.is_err(),
        "an expired certificate"
    );
    // The gateway's own certificate is good for no node.
    let (server, server_key) = ours
        .issue_server(&["localhost".into()], clock::now(), [3; 16])
        .unwrap();
    let server_key = KeyPair::from_pem(&server_key).unwrap();
    let posing = client(&site.ca(), Some((&server.pem, &server_key)));
    assert!(
        posing.post(&url).body(body()).send().await.is_err(),
        "the gateway's own certificate"
    );

    // Plain HTTP, TLS 1.2, garbage.
    let addr = site.daemon.as_ref().unwrap().gateway_addr();
    let mut plain = TcpStream::connect(addr).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(plain.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"), "no plain HTTP");

    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_idle_strangers_do_not_keep_a_place() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.gateway.handshake_timeout = Span::millis(500);
    config.gateway.max_connections = 4;
    site.start_with(config).await;
    let addr = site.daemon.as_ref().unwrap().gateway_addr();
    let began = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    // They hold every place until their handshake's time is over; then there is room again.
    let agent = Agent::enrolled(&site, "node-0001").await;
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    assert!(began.elapsed() < Duration::from_secs(20));
    let mut first = idle.remove(0);
    let mut byte = [0; 1];
    assert_eq!(first.read(&mut byte).await.unwrap_or(0), 0, "closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_headers_are_refused() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let client = agent.client(&site);
    let url = format!("{}/api/v1/hpc/nodes/node-0001/heartbeat", site.gateway());
    let mut request = client.post(&url);
    for i in 0..200 {
        request = request.header(format!("x-{i}"), "a");
    }
    let many = request.body("{}").send().await;
    assert!(many.is_err() || many.unwrap().status() == 431);
    let long = client
        .post(&url)
        .header("x-long", "a".repeat(64 * 1024))
        .body("{}")
        .send()
        .await;
    assert!(long.is_err() || long.unwrap().status() == 431);
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
}
