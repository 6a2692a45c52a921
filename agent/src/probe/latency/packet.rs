//! The bytes of latency probes (docs/protocol.md, section 2.6). Pure but for the keys that are passed in.

use hpc_schema::bytes::push_lp;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::key::{AgentKey, Verifier as _, ZebraVerifier};
use ring::hmac;
use sha2::{Digest, Sha256};

const MAGIC: [u8; 4] = *b"HPLP";
const VERSION: u8 = 1;
/// Bytes of a hello; no answer is longer.
pub(super) const HELLO: usize = 156;
/// Bytes of a welcome.
pub(super) const WELCOME: usize = 112;
/// Bytes of a ping, and of a pong.
pub(super) const ECHO: usize = 40;
/// Of a hello, what is signed; likewise of a welcome.
const HELLO_HEAD: usize = HELLO - 64;
const WELCOME_HEAD: usize = WELCOME - 64;
const ECHO_HEAD: usize = ECHO - 16;

/// What a datagram says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asks for a session.
    Hello,
    /// Grants it.
    Welcome,
    /// Is timed.
    Ping,
    /// Answers a ping.
    Pong,
}

impl Kind {
    const ALL: [(Self, u8, usize); 4] = [
        (Self::Hello, 1, HELLO),
        (Self::Welcome, 2, WELCOME),
        (Self::Ping, 3, ECHO),
        (Self::Pong, 4, ECHO),
    ];

    /// By header and length; none for anything else that comes in.
    #[must_use]
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (kind, word, length) = Self::ALL.into_iter().find(|(_, w, _)| bytes.get(5) == Some(w))?;
        (bytes.len() == length && bytes.get(..8)? == header(word)).then_some(kind)
    }

    fn word(self) -> u8 {
        Self::ALL
            .iter()
            .find(|(k, ..)| *k == self)
            .map_or(0, |(_, w, _)| *w)
    }
}

fn header(word: u8) -> [u8; 8] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, VERSION, word, 0, 0]
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Identifies a session: the first 8 bytes of SHA-256(hello).
pub(super) type SessionId = [u8; 8];

/// What a hello says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    /// UNIX seconds at the prober.
    pub time: u32,
    /// X25519.
    pub exchange: [u8; 32],
    /// The prober's agent key, 32 bytes; not checked yet.
    pub prober: [u8; 32],
}

/// Writes a hello up to its signature, which is over [`hello_message`].
#[must_use]
pub(super) fn hello_head(prober: &AgentKey, time: u32, nonce: [u8; 16], exchange: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HELLO);
    out.extend(header(Kind::Hello.word()));
    out.extend(time.to_be_bytes());
    out.extend(nonce);
    out.extend(exchange);
    out.extend(prober.as_bytes());
    out
}

/// What a prober signs: the hello serves node `target` of `cluster` alone.
#[must_use]
pub(super) fn hello_message(cluster: &ClusterId, target: &NodeId, head: &[u8]) -> Vec<u8> {
    let mut m = b"hpc-probe-hello-v1".to_vec();
    push_lp(&mut m, cluster.as_str());
    push_lp(&mut m, target.as_str());
    m.extend(head);
    m
}

/// Reads a hello without judging it.
#[must_use]
pub(super) fn read_hello(bytes: &[u8]) -> Option<Hello> {
    Some(Hello {
        time: u32::from_be_bytes(take(bytes, 8)?),
        exchange: take(bytes, 28)?,
        prober: take(bytes, 60)?,
    })
}

/// Whether the hello was meant for this node and signed by the key that it names.
#[must_use]
pub(super) fn verify_hello(bytes: &[u8], cluster: &ClusterId, node: &NodeId) -> bool {
    let parts = || {
        let key = AgentKey::from_bytes(take(bytes, 60)?).ok()?;
        Some((key, bytes.get(..HELLO_HEAD)?, bytes.get(HELLO_HEAD..)?))
    };
    parts().is_some_and(|(key, head, signature)| {
        ZebraVerifier.verify(&hello_message(cluster, node, head), signature, key.as_bytes())
    })
}

/// The session that a hello asks for.
#[must_use]
pub(super) fn session_id(hello: &[u8]) -> SessionId {
    let digest: [u8; 32] = Sha256::digest(hello).into();
    take(&digest, 0).unwrap_or_default()
}

/// Writes the welcome to `hello` up to its signature, which is over [`welcome_message`].
#[must_use]
pub(super) fn welcome_head(hello: &[u8], exchange: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(WELCOME);
    out.extend(header(Kind::Welcome.word()));
    out.extend(session_id(hello));
    out.extend(exchange);
    out
}

/// What the node asked signs.
#[must_use]
pub(super) fn welcome_message(hello: &[u8], head: &[u8]) -> Vec<u8> {
    let mut m = b"hpc-probe-welcome-v1".to_vec();
    m.extend(Sha256::digest(hello));
    m.extend(head);
    m
}

/// The X25519 key of a welcome to `hello`, if `key` signed it.
#[must_use]
pub(super) fn open_welcome(bytes: &[u8], hello: &[u8], key: &AgentKey) -> Option<[u8; 32]> {
    let (head, signature) = (bytes.get(..WELCOME_HEAD)?, bytes.get(WELCOME_HEAD..)?);
    let good = take(bytes, 8)? == session_id(hello)
        && ZebraVerifier.verify(&welcome_message(hello, head), signature, key.as_bytes());
    good.then(|| take(bytes, 16))?
}

/// The key of a session: bound to both its messages.
#[must_use]
pub(super) fn session_key(hello: &[u8], welcome: &[u8], shared: &[u8]) -> hmac::Key {
    let mut salt = Sha256::new();
    salt.update(b"hpc-probe-session-v1");
    salt.update(Sha256::digest(hello));
    salt.update(welcome.get(..WELCOME_HEAD).unwrap_or_default());
    let extract = hmac::Key::new(hmac::HMAC_SHA256, &salt.finalize());
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&extract, shared).as_ref())
}

/// Writes a ping or a pong.
#[must_use]
pub(super) fn echo(kind: Kind, id: SessionId, number: u32, key: &hmac::Key) -> Vec<u8> {
    let mut out = Vec::with_capacity(ECHO);
    out.extend(header(kind.word()));
    out.extend(id);
    out.extend(number.to_be_bytes());
    out.extend([0; 4]);
    let mac = hmac::sign(key, &out);
    out.extend(mac.as_ref().iter().take(16));
    out
}

/// Session and number of a ping or pong, unverified.
#[must_use]
pub(super) fn read_echo(bytes: &[u8]) -> Option<(SessionId, u32)> {
    Some((take(bytes, 8)?, u32::from_be_bytes(take(bytes, 16)?)))
}

/// Whether it was made with the session's key.
#[must_use]
pub(super) fn verify_echo(bytes: &[u8], key: &hmac::Key) -> bool {
    let (Some(head), Some(mac)) = (bytes.get(..ECHO_HEAD), bytes.get(ECHO_HEAD..)) else {
        return false;
    };
    let good = hmac::sign(key, head);
    // In constant time: an attacker must not learn how much of a guess was right.
    mac.len() == 16 && good.as_ref().iter().zip(mac).fold(0u8, |d, (a, b)| d | (a ^ b)) == 0
}

#[cfg(test)]
pub(super) mod signed {
    use super::*;
    use crate::key::NodeKey;

    pub(in super::super) fn hello(
        key: &NodeKey,
        (cluster, target): (&ClusterId, &NodeId),
        time: u32,
        nonce: [u8; 16],
        exchange: &[u8; 32],
    ) -> Vec<u8> {
        let mut out = hello_head(&key.public(), time, nonce, exchange);
        out.extend(key.sign(&hello_message(cluster, target, &out)));
        out
    }

    pub(in super::super) fn welcome(key: &NodeKey, hello: &[u8], exchange: &[u8; 32]) -> Vec<u8> {
        let mut out = welcome_head(hello, exchange);
        out.extend(key.sign(&welcome_message(hello, &out)));
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::signed::{hello, welcome};
    use super::*;
    use crate::key::NodeKey;

    fn names() -> (ClusterId, NodeId) {
        ("cluster-1".parse().unwrap(), "node-0002".parse().unwrap())
    }

    #[test]
    fn a_hello_serves_one_node_of_one_cluster() {
        let (cluster, node) = names();
        let key = NodeKey::from_seed([1; 32]).unwrap();
        let bytes = hello(&key, (&cluster, &node), 1_795_303_803, [7; 16], &[9; 32]);
        assert_eq!((bytes.len(), Kind::of(&bytes)), (HELLO, Some(Kind::Hello)));
        assert!(verify_hello(&bytes, &cluster, &node));
        assert!(!verify_hello(&bytes, &"cluster-2".parse().unwrap(), &node));
        assert!(!verify_hello(&bytes, &cluster, &"node-0003".parse().unwrap()));
        let h = read_hello(&bytes).unwrap();
        assert_eq!(
            (h.time, h.exchange, h.prober),
            (1_795_303_803, [9; 32], *key.public().as_bytes())
        );
        for at in 8..HELLO {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(!verify_hello(&changed, &cluster, &node), "byte {at}");
        }
    }

    #[test]
    fn a_welcome_answers_one_hello_with_the_key_of_the_node_asked() {
        let (cluster, node) = names();
        let (ours, theirs) = (
            NodeKey::from_seed([1; 32]).unwrap(),
            NodeKey::from_seed([2; 32]).unwrap(),
        );
        let h = hello(&ours, (&cluster, &node), 1, [7; 16], &[9; 32]);
        let w = welcome(&theirs, &h, &[8; 32]);
        assert_eq!((w.len(), Kind::of(&w)), (WELCOME, Some(Kind::Welcome)));
        assert_eq!(open_welcome(&w, &h, &theirs.public()), Some([8; 32]));
        assert_eq!(open_welcome(&w, &h, &ours.public()), None);
        let other = hello(&ours, (&cluster, &node), 1, [6; 16], &[9; 32]);
        assert_eq!(open_welcome(&w, &other, &theirs.public()), None);
        const { assert!(WELCOME <= HELLO) };
    }

    #[test]
    fn a_ping_is_no_pong_and_keys_of_other_sessions_do_not_fit() {
        let key = session_key(b"hello", &[0; WELCOME], b"shared");
        let ping = echo(Kind::Ping, [1; 8], 5, &key);
        assert_eq!(
            (ping.len(), Kind::of(&ping), read_echo(&ping)),
            (ECHO, Some(Kind::Ping), Some(([1; 8], 5)))
        );
        assert!(verify_echo(&ping, &key));
        let mut reflected = ping.clone();
        reflected[5] = 4;
        assert_eq!(Kind::of(&reflected), Some(Kind::Pong));
        assert!(!verify_echo(&reflected, &key));
        for other in [
            session_key(b"hello2", &[0; WELCOME], b"shared"),
            session_key(b"hello", &[1; WELCOME], b"shared"),
            session_key(b"hello", &[0; WELCOME], b"other"),
        ] {
            assert!(!verify_echo(&ping, &other));
        }
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (cluster, node) = names();
            prop_assert_eq!(Kind::of(&bytes), None);
            prop_assert!(!verify_hello(&bytes, &cluster, &node));
            prop_assert!(open_welcome(&bytes, b"", &NodeKey::from_seed([1; 32]).unwrap().public()).is_none());
            let _ = (read_hello(&bytes), read_echo(&bytes));
            prop_assert!(!verify_echo(&bytes, &session_key(b"", b"", b"")));
        }
    }
}
