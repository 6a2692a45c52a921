//! Latency to other nodes: answers their probes, and measures those that the gateway names, beside everything else.

use std::time::{Duration, Instant};

use hpc_schema::gateway::Peer;
use hpc_schema::id::{ClusterId, NodeId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::unix_seconds;
use crate::config::ResponderConfig;
use crate::key::SharedSigner;
use crate::probe::latency::{Known, MOST_PEERS, Measured, Prober, Responder, bind, serve};

/// The responder, and the round of measurements that runs.
#[derive(Debug)]
pub(super) struct Peers {
    key: watch::Sender<SharedSigner>,
    cluster: ClusterId,
    node: NodeId,
    known: watch::Sender<Known>,
    /// What is to be answered on, where that could not be opened yet.
    unopened: Option<(ResponderConfig, u16)>,
    responder: Option<JoinHandle<()>>,
    peers: Vec<Peer>,
    targets: Option<Vec<NodeId>>,
    round: Option<JoinHandle<Vec<Measured>>>,
    began: Option<Instant>,
}

impl Peers {
    /// Nothing runs yet.
    pub(super) fn new(key: SharedSigner, cluster: ClusterId, node: NodeId) -> Self {
        Self {
            key: watch::Sender::new(key),
            cluster,
            node,
            known: watch::Sender::new(Known::new()),
            unopened: None,
            responder: None,
            peers: Vec::new(),
            targets: None,
            round: None,
            began: None,
        }
    }

    /// Answers from now on. A port that is taken, or an address that the host does not have yet, is said and leaves the rest
    /// of the agent alone; it is tried again at each [`Self::step`].
    pub(super) async fn answer(&mut self, config: ResponderConfig) {
        let Some(port) = config.port else { return };
        if let Err(e) = self.open(config, port).await {
            tracing::warn!(
                "probe.port {port} (UDP) cannot be opened: {e}; other nodes cannot measure the latency to this one until it can"
            );
            self.unopened = Some((config, port));
        }
    }

    async fn open(&mut self, config: ResponderConfig, port: u16) -> std::io::Result<()> {
        let socket = bind(config.address, port).await?;
        let responder = Responder::new(self.cluster.clone(), self.node.clone());
        let (keys, known) = (self.key.subscribe(), self.known.subscribe());
        let task = serve(socket, responder, keys, known, unix_seconds);
        self.responder = Some(tokio::spawn(task));
        Ok(())
    }

    async fn open_at_last(&mut self) {
        let Some((config, port)) = self.unopened else {
            return;
        };
        if self.open(config, port).await.is_ok() {
            self.unopened = None;
            tracing::info!("probe.port {port} (UDP) is open now");
        }
    }

    /// Another key from now on.
    pub(super) fn sign_with(&mut self, key: SharedSigner) {
        self.key.send_replace(key);
    }

    /// The gateway's list.
    pub(super) fn take_over(&mut self, peers: &[Peer]) {
        if peers == self.peers {
            return;
        }
        let keys = peers.iter().map(|p| *p.public_key.as_bytes()).collect();
        self.known.send_if_modified(|known| {
            let changed = *known != keys;
            *known = keys;
            changed
        });
        self.peers = peers.to_vec();
    }

    /// Of the gateway's list, measure only these; an empty list: all.
    pub(super) fn target(&mut self, targets: &[NodeId]) {
        self.targets = (!targets.is_empty()).then(|| targets.to_vec());
    }

    /// What the round that has ended gave, and when it began; begins the next one once `interval` has passed. Does not
    /// wait.
    pub(super) async fn step(
        &mut self,
        now: Instant,
        interval: Duration,
        count: u32,
        timeout: Duration,
    ) -> Option<(Vec<Measured>, Instant)> {
        self.open_at_last().await;
        let began = self.began.unwrap_or(now);
        let ended = self.round.take_if(|r| r.is_finished());
        let due = self
            .began
            .is_none_or(|b| now.saturating_duration_since(b) >= interval);
        if self.round.is_none() && due {
            self.begin(now, count, timeout);
        }
        // It has finished; the error is that of a task that was cancelled at the end of the process.
        Some((ended?.await.ok()?, began))
    }

    fn begin(&mut self, now: Instant, count: u32, timeout: Duration) {
        let wanted = |p: &&Peer| self.targets.as_ref().is_none_or(|t| t.contains(&p.node_id));
        let peers: Vec<Peer> = self
            .peers
            .iter()
            .filter(wanted)
            .take(MOST_PEERS)
            .cloned()
            .collect();
        if peers.is_empty() {
            return;
        }
        self.began = Some(now);
        let prober = Prober {
            key: self.key.borrow().clone(),
            cluster: self.cluster.clone(),
            count,
            timeout,
        };
        self.round = Some(tokio::spawn(async move {
            prober.measure_all(&peers, unix_seconds).await
        }));
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if let Some(task) = &self.responder {
            task.abort();
        }
        if let Some(task) = &self.round {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::NodeKey;

    fn peers(n: u8) -> Peers {
        let key = NodeKey::from_seed([n; 32]).unwrap();
        Peers::new(
            key.shared(),
            "cluster-1".parse().unwrap(),
            format!("node-{n:04}").parse().unwrap(),
        )
    }

    fn peer(n: u8, port: u16) -> Peer {
        Peer {
            node_id: format!("node-{n:04}").parse().unwrap(),
            address: "127.0.0.1".into(),
            port,
            public_key: NodeKey::from_seed([n; 32]).unwrap().public(),
        }
    }

    /// A port that was free a moment ago.
    fn free() -> u16 {
        std::net::UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    }

    async fn result(peers: &mut Peers) -> Vec<Measured> {
        let (interval, timeout) = (Duration::from_secs(3600), Duration::from_secs(1));
        for _ in 0..2000 {
            if let Some((measured, _)) = peers.step(Instant::now(), interval, 3, timeout).await {
                return measured;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no round ended");
    }

    #[tokio::test]
    async fn two_agents_measure_each_other_and_only_when_it_is_time() {
        let (mut one, mut two) = (peers(1), peers(2));
        let (a, b) = (free(), free());
        let on = |port| ResponderConfig {
            port: Some(port),
            address: Some("127.0.0.1".parse().unwrap()),
            advertised: None,
        };
        one.answer(on(a)).await;
        two.answer(on(b)).await;
        one.take_over(&[peer(2, b)]);
        two.take_over(&[peer(1, a)]);
        for side in [&mut one, &mut two] {
            let measured = result(side).await;
            assert_eq!((measured.len(), measured[0].loss_percent), (1, 0));
        }
        let again = one
            .step(
                Instant::now(),
                Duration::from_secs(3600),
                3,
                Duration::from_millis(300),
            )
            .await;
        assert!(again.is_none() && one.round.is_none());
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_answered_on_once_it_is_free() {
        let (mut one, mut two) = (peers(1), peers(2));
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        two.answer(ResponderConfig {
            port: Some(port),
            address: Some("127.0.0.1".parse().unwrap()),
            advertised: None,
        })
        .await;
        two.take_over(&[peer(1, free())]);
        let round = (Duration::from_secs(3600), 3, Duration::from_millis(10));
        two.step(Instant::now(), round.0, round.1, round.2).await;
        assert!(two.responder.is_none());
        drop(taken);
        two.step(Instant::now(), round.0, round.1, round.2).await;
        one.take_over(&[peer(2, port)]);
        let measured = result(&mut one).await;
        assert_eq!((measured.len(), measured[0].loss_percent), (1, 0));
    }

    #[tokio::test]
    async fn without_peers_nothing_is_sent_and_targets_choose_among_them() {
        let mut one = peers(1);
        one.step(Instant::now(), Duration::ZERO, 3, Duration::from_millis(10))
            .await;
        assert!(one.round.is_none() && one.began.is_none());
        one.take_over(&[peer(2, free()), peer(3, free())]);
        one.target(&["node-0003".parse().unwrap()]);
        let measured = result(&mut one).await;
        assert_eq!(measured.len(), 1);
        assert_eq!(measured[0].peer.node_id.as_str(), "node-0003");
    }
}
