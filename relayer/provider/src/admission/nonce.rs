use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::report::{MAX_AGE_SECONDS, MAX_AHEAD_SECONDS};
use hpc_schema::time::UnixSeconds;

use crate::identity::PeerIdentity;

/// Nonces kept of one node. Beyond, the oldest goes: the rising sequence still stops its replay.
const PER_NODE: usize = 64;

type Seen = VecDeque<([u8; 16], UnixSeconds)>;

/// Nonces seen within the window of timestamps, bounded by nodes. Lost with the process: the sequence,
/// which is on disk, stops every replay from before.
#[derive(Debug, Default)]
pub(super) struct Nonces(Mutex<HashMap<ClusterId, HashMap<NodeId, Seen>>>);

impl Nonces {
    /// Notes the nonce of a heartbeat; none if it was there. It is taken back unless it is used for good: of a heartbeat that
    /// was not accepted for no fault of its own, or that nobody waits for any more, the same request may come again.
    pub(super) fn claim(
        self: &Arc<Self>,
        of: &Arc<PeerIdentity>,
        nonce: [u8; 16],
        now: UnixSeconds,
    ) -> Option<Unused> {
        // Not made where it is not wanted: dropping it takes the nonce back.
        self.insert(&of.cluster_id, &of.node_id, nonce, now)
            .then(|| Unused {
                nonces: Arc::clone(self),
                of: Some((Arc::clone(of), nonce)),
            })
    }

    fn insert(&self, cluster: &ClusterId, node: &NodeId, nonce: [u8; 16], now: UnixSeconds) -> bool {
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = match clusters.get_mut(cluster) {
            Some(nodes) => nodes,
            None => clusters.entry(cluster.clone()).or_default(),
        };
        let seen = match nodes.get_mut(node) {
            Some(seen) => seen,
            None => nodes.entry(node.clone()).or_default(),
        };
        let horizon = now.minus(MAX_AGE_SECONDS + MAX_AHEAD_SECONDS);
        while seen.front().is_some_and(|(_, at)| *at < horizon) || seen.len() > PER_NODE {
            seen.pop_front();
        }
        if seen.iter().any(|(n, _)| *n == nonce) {
            return false;
        }
        seen.push_back((nonce, now));
        true
    }

    fn remove(&self, cluster: &ClusterId, node: &NodeId, nonce: [u8; 16]) {
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = clusters.get_mut(cluster).and_then(|nodes| nodes.get_mut(node)) {
            seen.retain(|(n, _)| *n != nonce);
        }
    }

    /// Forgets nodes of which nothing is within the window.
    pub(super) fn prune(&self, now: UnixSeconds) {
        let horizon = now.minus(MAX_AGE_SECONDS + MAX_AHEAD_SECONDS);
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.retain(|_, nodes| {
            nodes.retain(|_, seen| seen.back().is_some_and(|(_, at)| *at >= horizon));
            !nodes.is_empty()
        });
    }
}

/// A nonce that is not used for good yet.
#[derive(Debug)]
pub(super) struct Unused {
    nonces: Arc<Nonces>,
    of: Option<(Arc<PeerIdentity>, [u8; 16])>,
}

impl Unused {
    /// It counts from here on.
    fn used(mut self) {
        self.of = None;
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some((of, nonce)) = self.of.take() {
            self.nonces.remove(&of.cluster_id, &of.node_id, nonce);
        }
    }
}

/// The nonce of a heartbeat, held by who waits for it and by who works on it: it may come again as soon as either gives it up.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
enum Held {
    /// Not yet, or it counts.
    #[default]
    Nothing,
    One(Unused),
    GivenUp,
}

impl Claim {
    fn becomes(&self, held: Held) -> Held {
        // What was held is not dropped under the lock: there is another one to take for that.
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), held)
    }

    /// This one, if nobody has given it up already.
    pub(super) fn hold(&self, nonce: Unused) {
        if matches!(self.becomes(Held::One(nonce)), Held::GivenUp) {
            self.give_up();
        }
    }

    /// It may come again, unless it counts already.
    pub(super) fn give_up(&self) {
        drop(self.becomes(Held::GivenUp));
    }

    /// It counts from here on, if it has not been given up.
    pub(super) fn count(&self) {
        if let Held::One(nonce) = self.becomes(Held::Nothing) {
            nonce.used();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::Vectors;

    #[test]
    fn a_nonce_counts_once_within_the_window_and_memory_is_bounded() {
        let (nonces, peer) = (Arc::new(Nonces::default()), Arc::new(Vectors::read().peer()));
        let (c, n) = (&peer.cluster_id, &peer.node_id);
        let other = "node-2".parse().unwrap();
        assert!(nonces.insert(c, n, [1; 16], UnixSeconds(1000)));
        assert!(!nonces.insert(c, n, [1; 16], UnixSeconds(1360)));
        assert!(
            nonces.insert(c, &other, [1; 16], UnixSeconds(1000)),
            "nodes do not share nonces"
        );
        drop(nonces.claim(&peer, [1; 16], UnixSeconds(1361)).unwrap());
        nonces.claim(&peer, [1; 16], UnixSeconds(1361)).unwrap().used();
        for again in 0..3 {
            let claimed = nonces.claim(&peer, [1; 16], UnixSeconds(1361));
            assert!(
                claimed.is_none(),
                "{again}: who is refused takes nobody's nonce away"
            );
        }
        for i in 0..1000u128 {
            assert!(nonces.insert(c, n, (i + 7).to_be_bytes(), UnixSeconds(1361)));
        }
        assert!(
            nonces
                .0
                .lock()
                .unwrap()
                .values()
                .flat_map(HashMap::values)
                .all(|seen| seen.len() <= PER_NODE + 1)
        );
        nonces.prune(UnixSeconds(5000));
        assert!(nonces.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_claim_ends_with_whoever_gives_it_up_first_and_with_the_last_who_holds_it_unless_it_counts() {
        let (nonces, peer) = (Arc::new(Nonces::default()), Arc::new(Vectors::read().peer()));
        let claim = || nonces.claim(&peer, [1; 16], UnixSeconds(1000));
        let (waits, works) = (Claim::default(), Claim::default());
        let other = waits.clone();
        waits.hold(claim().unwrap());
        assert!(claim().is_none());
        other.give_up();
        // Nobody waits any more by the time that it is claimed.
        waits.hold(claim().unwrap());
        waits.count();
        works.hold(claim().unwrap());
        let last = works.clone();
        drop(works);
        assert!(claim().is_none());
        drop(last);

        let counts = Claim::default();
        counts.hold(claim().unwrap());
        counts.count();
        counts.give_up();
        drop(counts);
        assert!(claim().is_none());
    }
}
