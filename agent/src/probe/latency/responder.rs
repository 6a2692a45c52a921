//! Answers other agents' probes. Nothing that comes in makes it send more than it got, work more than a bounded share
//! of the CPU, or keep more than a bounded table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hpc_schema::id::{ClusterId, NodeId};
use ring::hmac;

use super::exchange::Secret;
use super::packet::{
    Kind, SessionId, echo, read_echo, read_hello, session_id, session_key, verify_echo, verify_hello,
    welcome_head, welcome_message,
};

/// Sessions at once.
const SESSIONS: usize = 512;
/// A measurement is over long before.
const LIFETIME: Duration = Duration::from_secs(20);
/// Pongs of one session: at most 16 probes, some sent twice.
const PONGS: u32 = 64;
/// Clocks of nodes may differ as much as the protocol allows heartbeats to.
const CLOCK: u64 = 300;

/// Welcomes that wait for their signature at once; a device may take its time.
const SIGNING: usize = 16;

/// Agent keys that the gateway named.
pub type Known = BTreeSet<[u8; 32]>;

/// The responder of one node. Pure but for the session's secret.
pub struct Responder {
    cluster: ClusterId,
    node: NodeId,
    sessions: BTreeMap<SessionId, Session>,
    signing: BTreeSet<SessionId>,
    known: Bucket,
    /// Hellos that claim to be of known ones, true or not.
    claims: Bucket,
    strangers: Bucket,
}

struct Session {
    key: hmac::Key,
    from: SocketAddr,
    until: Instant,
    left: u32,
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("node", &self.node)
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

impl Responder {
    /// Answers as `node` of `cluster`.
    #[must_use]
    pub fn new(cluster: ClusterId, node: NodeId) -> Self {
        Self {
            cluster,
            node,
            sessions: BTreeMap::new(),
            signing: BTreeSet::new(),
            // The neighbours that the gateway gives us need not have us as theirs, so strangers are answered too,
            // but they cannot crowd out those we know. A hello costs a quarter of a millisecond.
            known: Bucket::new(20, 40),
            claims: Bucket::new(100, 200),
            strangers: Bucket::new(10, 20),
        }
    }

    /// The answer to a datagram; none if it deserves none.
    pub fn answer(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        known: &Known,
        now: Instant,
        unix: u64,
    ) -> Option<Reply> {
        match Kind::of(bytes)? {
            Kind::Ping => self.pong(bytes, from, now).map(Reply::Send),
            Kind::Hello => self
                .admit(bytes, from, known, now, unix)
                .map(|w| Reply::Sign(Box::new(w))),
            Kind::Welcome | Kind::Pong => None,
        }
    }

    fn pong(&mut self, bytes: &[u8], from: SocketAddr, now: Instant) -> Option<Vec<u8>> {
        let (id, number) = read_echo(bytes)?;
        let session = self.sessions.get_mut(&id)?;
        let good = session.from == from
            && now < session.until
            && session.left > 0
            && verify_echo(bytes, &session.key);
        good.then(|| {
            session.left = session.left.saturating_sub(1);
            echo(Kind::Pong, id, number, &session.key)
        })
    }

    fn admit(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        known: &Known,
        now: Instant,
        unix: u64,
    ) -> Option<Welcome> {
        let hello = read_hello(bytes)?;
        if unix.abs_diff(u64::from(hello.time)) > CLOCK {
            return None;
        }
        let id = session_id(bytes);
        if self.sessions.len() >= SESSIONS {
            self.sessions.retain(|_, s| now < s.until);
        }
        // A hello is used once: repeating one gives nobody fresh pongs.
        if self.sessions.len() >= SESSIONS || self.sessions.contains_key(&id) || self.signing.contains(&id) {
            return None;
        }
        if self.signing.len() >= SIGNING {
            return None;
        }
        // Before anything that costs. Anybody can name a known one's key: that takes nothing from its own share.
        let is_known = known.contains(&hello.prober);
        let looks = if is_known {
            &mut self.claims
        } else {
            &mut self.strangers
        };
        if !looks.take(now) || !verify_hello(bytes, &self.cluster, &self.node) {
            return None;
        }
        if is_known && !self.known.take(now) {
            return None;
        }
        let secret = Secret::generate()?;
        self.signing.insert(id);
        Some(Welcome {
            id,
            head: welcome_head(bytes, secret.public()),
            hello: bytes.to_vec(),
            exchange: hello.exchange,
            secret,
            from,
        })
    }

    /// The datagram for a welcome that has its signature, which opens the session.
    pub fn welcome(&mut self, welcome: Welcome, signature: &[u8; 64], now: Instant) -> Option<Vec<u8>> {
        self.signing.remove(&welcome.id);
        let mut answer = welcome.head;
        answer.extend(signature);
        let agree = |shared: &[u8]| session_key(&welcome.hello, &answer, shared);
        let key = welcome.secret.agree(&welcome.exchange, agree)?;
        let session = Session {
            key,
            from: welcome.from,
            until: now.checked_add(LIFETIME)?,
            left: PONGS,
        };
        self.sessions.insert(welcome.id, session);
        Some(answer)
    }

    /// It gets no signature.
    pub fn forget(&mut self, welcome: &Welcome) {
        self.signing.remove(&welcome.id);
    }
}

/// What a datagram is answered with.
#[derive(Debug)]
pub enum Reply {
    /// These bytes.
    Send(Vec<u8>),
    /// A welcome, once it is signed.
    Sign(Box<Welcome>),
}

/// A welcome without its signature.
pub struct Welcome {
    id: SessionId,
    head: Vec<u8>,
    hello: Vec<u8>,
    exchange: [u8; 32],
    secret: Secret,
    from: SocketAddr,
}

impl Welcome {
    /// What the agent's key signs.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        welcome_message(&self.hello, &self.head)
    }

    /// Who said hello.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.from
    }
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome")
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    burst: u64,
    /// Thousandths.
    tokens: u64,
    at: Option<Instant>,
}

impl Bucket {
    fn new(per_second: u64, burst: u64) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst.saturating_mul(1000),
            at: None,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = self.at.map_or(0, |at| {
            u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX)
        });
        // Kept until a whole millisecond has passed, so that many looks in one do not lose it.
        if passed > 0 || self.at.is_none() {
            self.at = Some(now);
        }
        let full = self.burst.saturating_mul(1000);
        self.tokens = self
            .tokens
            .saturating_add(passed.saturating_mul(self.per_second))
            .min(full);
        match self.tokens.checked_sub(1000) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::signed::hello;
    use super::super::packet::{ECHO, HELLO, WELCOME, open_welcome};
    use super::*;
    use crate::key::NodeKey;

    const NOW: u32 = 1_795_303_803;

    struct Site {
        responder: Responder,
        theirs: NodeKey,
        ours: NodeKey,
        from: SocketAddr,
        start: Instant,
    }

    fn site() -> Site {
        let theirs = NodeKey::from_seed([2; 32]).unwrap();
        Site {
            responder: Responder::new("cluster-1".parse().unwrap(), "node-0002".parse().unwrap()),
            theirs,
            ours: NodeKey::from_seed([1; 32]).unwrap(),
            from: "10.0.0.1:40000".parse().unwrap(),
            start: Instant::now(),
        }
    }

    impl Site {
        fn hello(&self, nonce: u8, exchange: &[u8; 32]) -> Vec<u8> {
            let (cluster, node) = ("cluster-1".parse().unwrap(), "node-0002".parse().unwrap());
            hello(&self.ours, (&cluster, &node), NOW, [nonce; 16], exchange)
        }
        fn ask(&mut self, bytes: &[u8], now: Instant) -> Option<Vec<u8>> {
            self.ask_at(bytes, &Known::new(), now, u64::from(NOW))
        }
        fn ask_at(&mut self, bytes: &[u8], known: &Known, now: Instant, unix: u64) -> Option<Vec<u8>> {
            match self.responder.answer(bytes, self.from, known, now, unix)? {
                Reply::Send(bytes) => Some(bytes),
                Reply::Sign(w) => {
                    let signature = self.theirs.sign(&w.message());
                    self.responder.welcome(*w, &signature, now)
                }
            }
        }
        fn session(&mut self, nonce: u8) -> (SessionId, hmac::Key) {
            let secret = Secret::generate().unwrap();
            let h = self.hello(nonce, secret.public());
            let w = self.ask(&h, self.start).unwrap();
            let exchange = open_welcome(&w, &h, &self.theirs.public()).unwrap();
            let key = secret.agree(&exchange, |s| session_key(&h, &w, s)).unwrap();
            (session_id(&h), key)
        }
    }

    #[test]
    fn a_session_is_granted_and_its_pings_are_answered_until_it_ends() {
        let mut s = site();
        let (id, key) = s.session(1);
        let ping = echo(Kind::Ping, id, 3, &key);
        let pong = s.ask(&ping, s.start).unwrap();
        assert!(verify_echo(&pong, &key) && Kind::of(&pong) == Some(Kind::Pong));
        assert_eq!(read_echo(&pong), Some((id, 3)));
        assert_eq!(s.ask(&pong, s.start), None, "a pong is not answered");
        s.from = "10.0.0.9:40000".parse().unwrap();
        assert_eq!(s.ask(&ping, s.start), None, "a session belongs to one address");
        s.from = "10.0.0.1:40000".parse().unwrap();
        let answered = (0..200).filter(|_| s.ask(&ping, s.start).is_some()).count();
        assert_eq!(answered, 63);
        let (id, key) = s.session(2);
        let late = s.start + LIFETIME;
        assert_eq!(s.ask(&echo(Kind::Ping, id, 0, &key), late), None);
    }

    #[test]
    fn what_is_not_a_good_hello_gets_no_answer() {
        let mut s = site();
        let h = s.hello(1, Secret::generate().unwrap().public());
        let known = Known::new();
        for (what, seconds) in [("late", 301u64), ("early", 0)] {
            let unix = if seconds == 0 {
                u64::from(NOW) - 301
            } else {
                u64::from(NOW) + seconds
            };
            let at = s.start;
            assert_eq!(s.ask_at(&h, &known, at, unix), None, "{what}");
        }
        let mut forged = h.clone();
        forged[HELLO - 1] ^= 1;
        assert_eq!(s.ask(&forged, s.start), None);
        let zero = s.hello(2, &[0; 32]);
        assert_eq!(s.ask(&zero, s.start), None);
        assert!(s.ask(&h, s.start).is_some());
        assert_eq!(s.ask(&h, s.start), None, "replayed");
        for junk in [&b""[..], b"x", &[0; ECHO], &[0; HELLO], &[b'H'; 2000]] {
            assert_eq!(s.ask(junk, s.start), None);
        }
    }

    #[test]
    fn no_answer_is_longer_than_its_question() {
        const { assert!(WELCOME <= HELLO && ECHO <= ECHO) };
        let mut s = site();
        let h = s.hello(1, Secret::generate().unwrap().public());
        assert!(s.ask(&h, s.start).unwrap().len() <= h.len());
    }

    #[test]
    fn a_flood_of_strangers_leaves_room_for_the_known() {
        let mut s = site();
        let exchange = *Secret::generate().unwrap().public();
        let mut granted = 0;
        for n in 0..100 {
            let h = s.hello(n, &exchange);
            granted += u32::from(s.ask(&h, s.start).is_some());
        }
        assert_eq!(granted, 20);
        let h = s.hello(200, &exchange);
        let known = Known::from([*s.ours.public().as_bytes()]);
        assert!(
            s.responder
                .answer(&h, s.from, &known, s.start, u64::from(NOW))
                .is_some()
        );
        // Who claims to be known and is not takes nothing from those who are.
        for n in 0..100 {
            let mut forged = s.hello(n, &exchange);
            *forged.last_mut().unwrap() ^= 1;
            let answer = s
                .responder
                .answer(&forged, s.from, &known, s.start, u64::from(NOW));
            assert!(answer.is_none());
        }
        let h = s.hello(203, &exchange);
        let answer = s.responder.answer(&h, s.from, &known, s.start, u64::from(NOW));
        assert!(answer.is_some());
        let (later, more) = (
            s.start + Duration::from_millis(100),
            [s.hello(201, &exchange), s.hello(202, &exchange)],
        );
        assert!(s.ask(&more[0], later).is_some());
        assert_eq!(s.ask(&more[1], later), None);
    }
}
