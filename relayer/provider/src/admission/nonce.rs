use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::report::{MAX_AGE_SECONDS, MAX_AHEAD_SECONDS};
use hpc_schema::time::UnixSeconds;

/// Nonces kept of one node. Beyond, the oldest goes: the rising sequence still stops its replay.
const PER_NODE: usize = 64;

type Seen = VecDeque<([u8; 16], UnixSeconds)>;

/// Nonces seen within the window of timestamps, bounded by nodes. Lost with the process: the sequence,
/// which is on disk, stops every replay from before.
#[derive(Debug, Default)]
pub struct Nonces(Mutex<HashMap<ClusterId, HashMap<NodeId, Seen>>>);

impl Nonces {
    /// Notes the nonce of a heartbeat; none if it was there. It is taken back unless it is used for good: of a heartbeat that
    /// was not accepted for no fault of its own, or that nobody waits for any more, the same request may come again.
    pub fn claim<'a>(
        &'a self,
        cluster: &'a ClusterId,
        node: &'a NodeId,
        nonce: [u8; 16],
        now: UnixSeconds,
    ) -> Option<Unused<'a>> {
        // Not made where it is not wanted: dropping it takes the nonce back.
        self.insert(cluster, node, nonce, now).then(|| Unused {
            nonces: self,
            of: Some((cluster, node, nonce)),
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
    pub fn prune(&self, now: UnixSeconds) {
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
pub struct Unused<'a> {
    nonces: &'a Nonces,
    of: Option<(&'a ClusterId, &'a NodeId, [u8; 16])>,
}

impl Unused<'_> {
    /// It counts from here on.
    pub fn used(mut self) {
        self.of = None;
    }
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some((cluster, node, nonce)) = self.of.take() {
            self.nonces.remove(cluster, node, nonce);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_counts_once_within_the_window_and_memory_is_bounded() {
        let (nonces, c, n) = (
            Nonces::default(),
            "hpc-cluster-1".parse().unwrap(),
            "node-1".parse().unwrap(),
        );
        let other = "node-2".parse().unwrap();
        assert!(nonces.insert(&c, &n, [1; 16], UnixSeconds(1000)));
        assert!(!nonces.insert(&c, &n, [1; 16], UnixSeconds(1360)));
        assert!(
            nonces.insert(&c, &other, [1; 16], UnixSeconds(1000)),
            "nodes do not share nonces"
        );
        drop(nonces.claim(&c, &n, [1; 16], UnixSeconds(1361)).unwrap());
        nonces.claim(&c, &n, [1; 16], UnixSeconds(1361)).unwrap().used();
        for again in 0..3 {
            let claimed = nonces.claim(&c, &n, [1; 16], UnixSeconds(1361));
            assert!(
                claimed.is_none(),
                "{again}: who is refused takes nobody's nonce away"
            );
        }
        for i in 0..1000u128 {
            assert!(nonces.insert(&c, &n, (i + 7).to_be_bytes(), UnixSeconds(1361)));
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
}
