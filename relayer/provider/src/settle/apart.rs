use std::collections::BTreeMap;

use hpc_chain::code::{Class, Verdict};
use hpc_schema::id::{ClusterId, NodeId};

use crate::clock::Steady;

/// The first time it lets others pass for so long: it may have been the endpoint that was wrong.
const FIRST_MS: u64 = 3_000;
/// Then for twice as long each time, and at most for so long.
const MOST_MS: u64 = 60_000;

/// A node of a cluster.
pub(super) type NodeKey = (ClusterId, NodeId);

/// What is not taken, alone in its transaction and for no reason of the contract's (a node's report, a registration), and
/// until when it lets others pass. Pure.
#[derive(Debug)]
pub(super) struct Apart<K> {
    pauses: BTreeMap<K, Pause>,
    /// At once. If more are at fault, no single one is, and all wait.
    most: usize,
}

#[derive(Debug)]
struct Pause {
    until: Steady,
    length_ms: u64,
}

impl<K: Ord + Clone> Apart<K> {
    /// Nobody; `most` at once.
    pub(super) fn at_most(most: usize) -> Self {
        let pauses = BTreeMap::new();
        Self { pauses, most }
    }

    /// How many, and whether it is their time or not.
    pub(super) fn len(&self) -> usize {
        self.pauses.len()
    }

    /// Whether it is nobody.
    pub(super) fn is_empty(&self) -> bool {
        self.pauses.is_empty()
    }

    /// Lets others pass this one; whether it was so before. None: there are too many.
    pub(super) fn put(&mut self, one: K, now: Steady) -> Option<bool> {
        let last = self.pauses.get(&one).map(|p| p.length_ms);
        if last.is_none() && self.pauses.len() >= self.most {
            return None;
        }
        let length_ms = last.map_or(FIRST_MS, |ms| ms.saturating_mul(2).min(MOST_MS));
        let until = now.after(length_ms);
        self.pauses.insert(one, Pause { until, length_ms });
        Some(last.is_some())
    }

    /// Whether others pass it now.
    pub(super) fn holds(&self, one: &K, now: Steady) -> bool {
        self.pauses.get(one).is_some_and(|p| p.until > now)
    }

    /// It passes with the others again; whether it did not before.
    pub(super) fn remove(&mut self, one: &K) -> bool {
        self.pauses.remove(one).is_some()
    }

    /// Those of which this is not so, which are forgotten.
    pub(super) fn retain(&mut self, so: impl Fn(&K) -> bool) -> Vec<K> {
        let gone: Vec<_> = self.pauses.keys().filter(|one| !so(one)).cloned().collect();
        for one in &gone {
            self.pauses.remove(one);
        }
        gone
    }
}

/// Whether a verdict on a transaction of one report can be that report's fault.
pub(super) fn may_be_its_fault(verdict: &Verdict) -> bool {
    // Of a height that is over the next transaction knows nothing.
    verdict.class() == Some(Class::Rejected) && *verdict != Verdict::TimeoutHeight
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: usize) -> NodeKey {
        (
            "hpc-cluster-1".parse().unwrap(),
            format!("node-{n}").parse().unwrap(),
        )
    }

    #[test]
    fn a_node_lets_others_pass_longer_each_time_up_to_a_minute_and_not_all_do() {
        const MOST: usize = 32;
        let mut apart = Apart::at_most(MOST);
        assert_eq!(apart.put(node(0), Steady(1_000)), Some(false));
        assert!(apart.holds(&node(0), Steady(3_999)) && !apart.holds(&node(0), Steady(4_000)));
        let at = Steady(4_000);
        for pause in [6_000, 12_000, 24_000, 48_000, 60_000, 60_000] {
            assert_eq!(apart.put(node(0), at), Some(true));
            assert!(apart.holds(&node(0), at.after(pause - 1)) && !apart.holds(&node(0), at.after(pause)));
        }
        for n in 1..MOST {
            assert_eq!(apart.put(node(n), at), Some(false));
        }
        assert_eq!(apart.put(node(MOST), at), None);
        assert_eq!(
            apart.put(node(1), Steady(8_000)),
            Some(true),
            "one that is known has its place"
        );
        assert!(apart.remove(&node(0)) && !apart.remove(&node(0)));
        assert_eq!(apart.retain(|n| *n != node(2)), [node(2)]);
        assert_eq!(
            apart.put(node(2), Steady(9_000)),
            Some(false),
            "as if for the first time"
        );
    }
}
