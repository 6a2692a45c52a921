//! Measures the round trip to other agents.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hpc_schema::gateway::{Peer, is_probe_address};
use hpc_schema::id::ClusterId;
use ring::hmac;
use tokio::net::UdpSocket;
use tokio::time::timeout_at;

use super::exchange::Secret;
use super::packet::{
    Kind, SessionId, WELCOME, echo, hello_head, hello_message, open_welcome, read_echo, session_id,
    session_key, verify_echo,
};
use crate::key::SharedSigner;
use crate::random;

/// Peers measured at once: few, so that they do not delay each other.
const LANES: usize = 4;
/// Peers measured in one round; the heartbeat holds no more.
pub const MOST_PEERS: usize = hpc_schema::heartbeat::MAX_MEASUREMENTS;
/// A hello may be lost like any datagram.
const HELLOS: u32 = 2;

/// Who asks, and how often.
#[derive(Debug, Clone)]
pub struct Prober {
    /// Our key.
    pub key: SharedSigner,
    /// Our cluster.
    pub cluster: ClusterId,
    /// Pings for each peer.
    pub count: u32,
    /// Longest wait for one answer.
    pub timeout: Duration,
}

/// What came of one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The peer.
    pub peer: Peer,
    /// Median of the round trips in microseconds; none if none came back.
    pub latency_us: Option<u64>,
    /// Pings that were not answered, in percent.
    pub loss_percent: u8,
    /// UNIX seconds.
    pub measured_at: u64,
}

impl Prober {
    /// Measures all of `peers`; those whose address cannot be used are left out. `unix` is the wall clock in seconds.
    pub async fn measure_all(&self, peers: &[Peer], unix: fn() -> u64) -> Vec<Measured> {
        let lane = |n: usize| async move {
            let mut measured = Vec::new();
            for (at, peer) in peers.iter().take(MOST_PEERS).enumerate().skip(n).step_by(LANES) {
                // Large, and four of them at once: kept off the stack.
                if let Some(m) = Box::pin(self.measure(peer, unix)).await {
                    measured.push((at, m));
                }
            }
            measured
        };
        let (a, b, c, d) = tokio::join!(lane(0), lane(1), lane(2), lane(3));
        let mut all: Vec<(usize, Measured)> = [a, b, c, d].into_iter().flatten().collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, m)| m).collect()
    }

    /// Measures one peer; none if it is this node, its address is no unicast IP address, or no socket can be had.
    pub async fn measure(&self, peer: &Peer, unix: fn() -> u64) -> Option<Measured> {
        if peer.public_key == self.key.public() {
            return None;
        }
        let address = SocketAddr::new(unicast(&peer.address)?, peer.port);
        let any: SocketAddr = if address.is_ipv4() {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any).await.ok()?;
        // From now on the kernel drops what others send.
        socket.connect(address).await.ok()?;
        let mut round_trips = Vec::new();
        if let Some((id, key)) = self.session(&socket, peer, unix).await {
            for number in 0..self.count {
                round_trips.extend(self.ping(&socket, id, number, &key).await);
            }
        }
        round_trips.sort_unstable();
        let answered = u64::try_from(round_trips.len()).unwrap_or(u64::MAX);
        let asked = u64::from(self.count.max(1));
        Some(Measured {
            peer: peer.clone(),
            // The lower of two in the middle: queues only add.
            latency_us: round_trips.get(round_trips.len().saturating_sub(1) / 2).copied(),
            loss_percent: crate::probe::percent(asked.saturating_sub(answered), asked)?,
            measured_at: unix(),
        })
    }

    async fn session(
        &self,
        socket: &UdpSocket,
        peer: &Peer,
        unix: fn() -> u64,
    ) -> Option<(SessionId, hmac::Key)> {
        for _ in 0..HELLOS {
            let secret = Secret::generate()?;
            let time = u32::try_from(unix()).ok()?;
            let nonce = random::bytes().ok()?;
            let mut question = hello_head(&self.key.public(), time, nonce, secret.public());
            let message = hello_message(&self.cluster, &peer.node_id, &question);
            question.extend(self.key.sign(&message).await.ok()?);
            let found = self
                .exchange(socket, &question, |answer| {
                    (Kind::of(answer) == Some(Kind::Welcome)).then(|| {
                        open_welcome(answer, &question, &peer.public_key).map(|e| (e, answer.to_vec()))
                    })?
                })
                .await;
            if let Some((exchange, answer)) = found {
                let key = secret.agree(&exchange, |shared| session_key(&question, &answer, shared))?;
                return Some((session_id(&question), key));
            }
        }
        None
    }

    async fn ping(&self, socket: &UdpSocket, id: SessionId, number: u32, key: &hmac::Key) -> Option<u64> {
        let question = echo(Kind::Ping, id, number, key);
        let sent = Instant::now();
        let back = self
            .exchange(socket, &question, |answer| {
                // The clock is read before anything is computed.
                let back = Instant::now();
                let good = Kind::of(answer) == Some(Kind::Pong)
                    && read_echo(answer) == Some((id, number))
                    && verify_echo(answer, key);
                good.then_some(back)
            })
            .await?;
        u64::try_from(back.saturating_duration_since(sent).as_micros())
            .ok()
            .map(|us| us.max(1))
    }

    /// Sends once and waits for an answer that `accept` takes.
    async fn exchange<T>(
        &self,
        socket: &UdpSocket,
        question: &[u8],
        mut accept: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let end = tokio::time::Instant::now().checked_add(self.timeout)?;
        socket.send(question).await.ok()?;
        let mut buffer = [0u8; WELCOME + 1];
        loop {
            match timeout_at(end, socket.recv(&mut buffer)).await {
                Ok(Ok(n)) => {
                    if let Some(found) = buffer.get(..n).and_then(&mut accept) {
                        return Some(found);
                    }
                }
                // Nobody listens there; the next datagram may fare better.
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }
}

/// Mean of those that answered.
#[must_use]
pub fn average(measured: &[Measured]) -> Option<u64> {
    let (sum, n) = measured
        .iter()
        .filter_map(|m| m.latency_us)
        .fold((0u64, 0u64), |(sum, n), us| {
            (sum.saturating_add(us), n.saturating_add(1))
        });
    sum.saturating_add(n / 2).checked_div(n)
}

fn unicast(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().filter(|ip| is_probe_address(*ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unicast_addresses_are_probed() {
        for good in ["10.0.0.1", "::1", "fd00::7"] {
            assert!(unicast(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "node7",
            "224.0.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "ff02::1",
            "10.0.0.1:5",
        ] {
            assert!(unicast(bad).is_none(), "{bad}");
        }
    }
}
