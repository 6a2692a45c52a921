use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use hpc_schema::gateway::Peer;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::*;
use crate::clock::unix_seconds;
use crate::key::NodeKey;

fn key(n: u8) -> NodeKey {
    NodeKey::from_seed([n; 32]).unwrap()
}

fn prober(timeout_ms: u64) -> Prober {
    Prober {
        key: key(1).shared(),
        cluster: "cluster-1".parse().unwrap(),
        count: 3,
        timeout: Duration::from_millis(timeout_ms),
    }
}

/// An agent that answers; its key is `n`.
async fn agent(n: u8) -> Peer {
    let socket = bind(Some(Ipv4Addr::LOCALHOST.into()), 0).await.unwrap();
    let peer = Peer {
        node_id: format!("node-{n:04}").parse().unwrap(),
        address: "127.0.0.1".into(),
        port: socket.local_addr().unwrap().port(),
        public_key: key(n).public(),
    };
    let responder = Responder::new("cluster-1".parse().unwrap(), peer.node_id.clone());
    let (_, known) = watch::channel(Known::new());
    let (_, key) = watch::channel(key(n).shared());
    tokio::spawn(serve(socket, responder, key, known, unix_seconds));
    peer
}

#[tokio::test]
async fn peers_are_measured_and_the_silent_are_lost() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut peers = Vec::new();
    for n in 2..8 {
        peers.push(agent(n).await);
    }
    peers[2].port = silent.local_addr().unwrap().port();
    peers[3].address = "not an address".into();
    let start = Instant::now();
    let measured = prober(1000).measure_all(&peers, unix_seconds).await;
    assert!(start.elapsed() < Duration::from_secs(10));
    let shown: Vec<(&str, bool, u8)> = measured
        .iter()
        .map(|m| (m.peer.node_id.as_str(), m.latency_us.is_some(), m.loss_percent))
        .collect();
    assert_eq!(
        shown,
        [
            ("node-0002", true, 0),
            ("node-0003", true, 0),
            ("node-0004", false, 100),
            ("node-0006", true, 0),
            ("node-0007", true, 0),
        ]
    );
    let mean = average(&measured).unwrap();
    assert!((1..100_000).contains(&mean), "{mean} µs over loopback");
    assert_eq!(average(&measured[2..3]), None);
}

#[tokio::test]
async fn without_an_address_both_families_are_heard_whatever_the_host_makes_of_sockets_of_ipv6() {
    let socket = bind(None, 0).await.unwrap();
    let at = socket.local_addr().unwrap();
    let families: &[&str] = if at.is_ipv6() {
        // Cleared by us, not by the host's default.
        assert!(!rustix::net::sockopt::ipv6_v6only(&socket).unwrap());
        &["127.0.0.1", "::1"]
    } else {
        &["127.0.0.1"]
    };
    for peer in families {
        let Ok(ours) = UdpSocket::bind((*peer, 0)).await else {
            // No such loopback address on this host.
            assert_eq!(*peer, "::1");
            continue;
        };
        ours.send_to(b"x", (*peer, at.port())).await.unwrap();
        let mut buffer = [0; 8];
        let heard = tokio::time::timeout(Duration::from_secs(5), socket.recv_from(&mut buffer));
        assert_eq!(heard.await.unwrap().unwrap().0, 1, "{peer}");
    }
    // The port is taken for both.
    let again = bind(None, at.port()).await.unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn an_impostor_is_not_believed_and_nobody_measures_itself() {
    // It has the port of node 2, not its key.
    let mut peer = agent(3).await;
    peer.node_id = "node-0002".parse().unwrap();
    peer.public_key = key(2).public();
    let m = prober(100).measure(&peer, unix_seconds).await.unwrap();
    assert_eq!((m.latency_us, m.loss_percent), (None, 100));
    let ourselves = agent(1).await;
    assert_eq!(prober(100).measure(&ourselves, unix_seconds).await, None);
}

/// Forwards between a prober and an agent, losing every second datagram from the prober after the first, and delaying
/// the rest.
async fn lossy(peer: &mut Peer, delay: Duration) {
    let (front, back) = (
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
    );
    back.connect(("127.0.0.1", peer.port)).await.unwrap();
    peer.port = front.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut buffer, mut answer) = ([0u8; 500], [0u8; 500]);
        let mut seen = 0;
        loop {
            let (n, from) = front.recv_from(&mut buffer).await.unwrap();
            seen += 1;
            if seen % 2 == 0 {
                continue;
            }
            tokio::time::sleep(delay).await;
            back.send(&buffer[..n]).await.unwrap();
            let n = back.recv(&mut answer).await.unwrap();
            front.send_to(&answer[..n], from).await.unwrap();
        }
    });
}

#[tokio::test]
async fn loss_and_delay_of_the_way_are_measured() {
    let mut peer = agent(2).await;
    lossy(&mut peer, Duration::from_millis(20)).await;
    // The hello passes; of three pings the first and the third are lost.
    let m = prober(1000).measure(&peer, unix_seconds).await.unwrap();
    assert_eq!(m.loss_percent, 67);
    let us = m.latency_us.unwrap();
    // A loaded machine adds to it, up to the prober's patience.
    assert!((20_000..1_000_000).contains(&us), "{us} µs");
}

#[tokio::test]
async fn a_port_that_is_closed_is_loss_at_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut peer = agent(2).await;
    peer.port = socket.local_addr().unwrap().port();
    drop(socket);
    let start = Instant::now();
    let m = prober(5000).measure(&peer, unix_seconds).await.unwrap();
    assert_eq!(m.loss_percent, 100);
    assert!(start.elapsed() < Duration::from_secs(2));
}
