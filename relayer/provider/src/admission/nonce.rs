use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
pub(super) struct Window(Mutex<HashMap<ClusterId, HashMap<NodeId, Nonces>>>);

/// Those of one node, for who asks for them again and again and would look them up each time. While these are held the node has
/// no others.
#[derive(Debug, Clone, Default)]
pub struct Nonces(Arc<Mutex<Seen>>);

impl Window {
    /// Those of this node.
    pub(super) fn of(&self, peer: &PeerIdentity) -> Nonces {
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = match clusters.get_mut(&peer.cluster_id) {
            Some(nodes) => nodes,
            None => clusters.entry(peer.cluster_id.clone()).or_default(),
        };
        match nodes.get(&peer.node_id) {
            Some(known) => known.clone(),
            None => nodes.entry(peer.node_id.clone()).or_default().clone(),
        }
    }

    /// Nodes that it has nonces of.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().values().map(HashMap::len).sum()
    }

    /// Forgets nodes of which nothing is within the window; of those whose nonces somebody holds these become none.
    pub(super) fn prune(&self, now: UnixSeconds) {
        let mut clusters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.retain(|_, nodes| {
            nodes.retain(|_, nonces| {
                // Asked first: who lets go of them from here on has noted its nonce before they are looked at.
                let held = nonces.is_held();
                nonces.prune(now) || held
            });
            !nodes.is_empty()
        });
    }
}

impl Nonces {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By somebody beside the window, which hands out none while this is asked.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Notes the nonce of a heartbeat; none if it was there. It is taken back unless it is used for good: of a heartbeat that
    /// was not accepted for no fault of its own, or that nobody waits for any more, the same request may come again.
    pub(super) fn claim(&self, nonce: [u8; 16], now: UnixSeconds) -> Option<Unused> {
        // Not made where it is not wanted: dropping it takes the nonce back.
        self.insert(nonce, now).then(|| Unused {
            of: Some((self.clone(), nonce)),
        })
    }

    fn insert(&self, nonce: [u8; 16], now: UnixSeconds) -> bool {
        let mut seen = self.lock();
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

    fn remove(&self, nonce: [u8; 16]) {
        self.lock().retain(|(n, _)| *n != nonce);
    }

    /// Gives back the memory of those that are not within the window, once all are; whether one is.
    fn prune(&self, now: UnixSeconds) -> bool {
        let horizon = now.minus(MAX_AGE_SECONDS + MAX_AHEAD_SECONDS);
        let mut seen = self.lock();
        let within = seen.back().is_some_and(|(_, at)| *at >= horizon);
        if !within {
            *seen = VecDeque::new();
        }
        within
    }
}

/// A nonce that is not used for good yet.
#[derive(Debug)]
pub(super) struct Unused {
    of: Option<(Nonces, [u8; 16])>,
}

impl Unused {
    /// It counts from here on.
    fn used(mut self) {
        self.of = None;
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some((nonces, nonce)) = self.of.take() {
            nonces.remove(nonce);
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
        let (window, peer) = (Window::default(), Vectors::read().peer());
        let other = PeerIdentity {
            node_id: "node-2".parse().unwrap(),
            ..peer.clone()
        };
        let nonces = window.of(&peer);
        assert!(nonces.insert([1; 16], UnixSeconds(1000)));
        assert!(!nonces.insert([1; 16], UnixSeconds(1360)));
        assert!(
            !window.of(&peer).insert([1; 16], UnixSeconds(1360)),
            "another connection of the node has the same"
        );
        assert!(
            window.of(&other).insert([1; 16], UnixSeconds(1000)),
            "nodes do not share nonces"
        );
        drop(nonces.claim([1; 16], UnixSeconds(1361)).unwrap());
        nonces.claim([1; 16], UnixSeconds(1361)).unwrap().used();
        for again in 0..3 {
            let claimed = nonces.claim([1; 16], UnixSeconds(1361));
            assert!(
                claimed.is_none(),
                "{again}: who is refused takes nobody's nonce away"
            );
        }
        for i in 0..1000u128 {
            assert!(nonces.insert((i + 7).to_be_bytes(), UnixSeconds(1361)));
        }
        let nodes = || -> Vec<usize> {
            let clusters = window.0.lock().unwrap();
            clusters
                .values()
                .flat_map(HashMap::values)
                .map(|n| n.lock().len())
                .collect()
        };
        assert!(nodes().len() == 2 && nodes().iter().all(|seen| *seen <= PER_NODE + 1));

        // What is held is emptied and stays the node's; the other is forgotten.
        window.prune(UnixSeconds(1662));
        assert!(nodes() == [PER_NODE + 1], "{:?}", nodes());
        window.prune(UnixSeconds(5000));
        assert!(nodes() == [0] && nonces.lock().capacity() == 0);
        assert!(nonces.insert([1; 16], UnixSeconds(5000)));
        assert!(!window.of(&peer).insert([1; 16], UnixSeconds(5000)));
        drop(nonces);
        window.prune(UnixSeconds(5001));
        assert_eq!(nodes(), [1]);
        window.prune(UnixSeconds(9000));
        assert!(window.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_claim_ends_with_whoever_gives_it_up_first_and_with_the_last_who_holds_it_unless_it_counts() {
        let nonces = Nonces::default();
        let claim = || nonces.claim([1; 16], UnixSeconds(1000));
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
