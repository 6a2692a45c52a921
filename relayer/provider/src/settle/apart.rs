use std::collections::BTreeMap;

use hpc_chain::code::{Class, Verdict};
use hpc_schema::id::{ClusterId, NodeId};

/// The first time a report lets others pass for so long: it may have been the endpoint that was wrong.
const FIRST_MS: u64 = 3_000;
/// And then for so long each time.
const THEN_MS: u64 = 60_000;
/// Most nodes at once. If more are at fault, no single report is, and all wait.
const MOST: usize = 32;

/// A node of a cluster.
pub(super) type NodeKey = (ClusterId, NodeId);

/// Nodes whose report is not taken, alone in its transaction and for no reason of the contract's, and until when they let
/// others pass. Pure.
#[derive(Debug, Default)]
pub(super) struct Apart(BTreeMap<NodeKey, u64>);

impl Apart {
    /// Whether it is nobody.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets others pass this node; whether it was so before. None: there are too many.
    pub(super) fn put(&mut self, node: NodeKey, now_ms: u64) -> Option<bool> {
        let again = self.0.contains_key(&node);
        if !again && self.0.len() >= MOST {
            return None;
        }
        let pause = if again { THEN_MS } else { FIRST_MS };
        self.0.insert(node, now_ms.saturating_add(pause));
        Some(again)
    }

    /// Whether others pass it now.
    pub(super) fn holds(&self, node: &NodeKey, now_ms: u64) -> bool {
        self.0.get(node).is_some_and(|until| *until > now_ms)
    }

    /// It passes with the others again; whether it did not before.
    pub(super) fn remove(&mut self, node: &NodeKey) -> bool {
        self.0.remove(node).is_some()
    }

    /// Those of which this is not so, which are forgotten.
    pub(super) fn retain(&mut self, so: impl Fn(&NodeKey) -> bool) -> Vec<NodeKey> {
        let gone: Vec<_> = self.0.keys().filter(|n| !so(n)).cloned().collect();
        for node in &gone {
            self.0.remove(node);
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
    fn a_node_lets_others_pass_shortly_and_then_for_a_minute_and_not_all_do() {
        let mut apart = Apart::default();
        assert_eq!(apart.put(node(0), 1_000), Some(false));
        assert!(apart.holds(&node(0), 3_999) && !apart.holds(&node(0), 4_000));
        assert_eq!(apart.put(node(0), 4_000), Some(true));
        assert!(apart.holds(&node(0), 63_999) && !apart.holds(&node(0), 64_000));
        for n in 1..MOST {
            assert_eq!(apart.put(node(n), 4_000), Some(false));
        }
        assert_eq!(apart.put(node(MOST), 4_000), None);
        assert_eq!(
            apart.put(node(1), 8_000),
            Some(true),
            "one that is known has its place"
        );
        assert!(apart.remove(&node(0)) && !apart.remove(&node(0)));
        assert_eq!(apart.retain(|n| *n != node(2)), [node(2)]);
        assert_eq!(apart.put(node(2), 9_000), Some(false), "as if for the first time");
    }
}
