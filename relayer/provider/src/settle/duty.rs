//! The chain's duties: which cluster needs a sweep, and whether old records are to be removed. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::node::NodeState;
use hpc_schema::registry::Params;
use hpc_schema::time::UnixSeconds;

use crate::registry::Node;

/// Whether a sweep at `now` (block time) would record another state of this node.
#[must_use]
pub fn would_step(node: &Node, params: &Params, now: UnixSeconds) -> bool {
    let n = &node.chain;
    let silence = now.since(n.last_heartbeat);
    match n.recorded_state {
        NodeState::Pending | NodeState::Deregistered => false,
        NodeState::Active => silence > u64::from(params.heartbeat_timeout),
        NodeState::Stale | NodeState::Draining | NodeState::Drained => {
            silence > u64::from(params.offline_threshold)
        }
        NodeState::Offline => {
            let on_record = params
                .deregistration_delay
                .saturating_sub(params.offline_threshold);
            let protected = n.drain.as_ref().is_some_and(|d| now <= d.until);
            !protected
                && silence > u64::from(params.deregistration_delay)
                && n.offline_since
                    .is_some_and(|since| now.since(since) >= u64::from(on_record))
        }
    }
}

/// A sweep signed now is in a block some seconds later: a node that would be stepped by then is looked at as one that is.
const AHEAD_SECONDS: u64 = 15;

/// Whether a sweep that is signed at `now` may step this node.
#[must_use]
pub fn may_step(node: &Node, params: &Params, now: UnixSeconds) -> bool {
    would_step(node, params, now.plus(AHEAD_SECONDS))
}

/// The clusters that a sweep would change something in, and whether each may be swept: not while a report of a node that the
/// sweep would step has not ended, for it could save the node. Only nodes that [`may_step`] count.
#[must_use]
pub fn sweeps(
    nodes: &[Arc<Node>],
    unsettled: &BTreeSet<(ClusterId, NodeId)>,
    params: &Params,
    now: UnixSeconds,
) -> BTreeMap<ClusterId, bool> {
    // Of each cluster: whether a node would be stepped now, and whether none that would be by then is waited for.
    let mut clusters: BTreeMap<&ClusterId, (bool, bool)> = BTreeMap::new();
    for node in nodes.iter().filter(|n| may_step(n, params, now)) {
        let held = unsettled.contains(&(node.cluster_id.clone(), node.node_id.clone()));
        let (due, free) = clusters.entry(&node.cluster_id).or_insert((false, true));
        *due |= would_step(node, params, now);
        *free &= !held;
    }
    clusters
        .into_iter()
        .filter(|(_, (due, _))| *due)
        .map(|(c, (_, free))| (c.clone(), free))
        .collect()
}

/// In how many pages these nodes are.
#[must_use]
pub fn pages<'n>(nodes: impl Iterator<Item = &'n Arc<Node>>) -> u64 {
    let pages: BTreeSet<_> = nodes.map(|n| (&n.cluster_id, n.chain.page)).collect();
    u64::try_from(pages.len()).unwrap_or(u64::MAX)
}

/// How much a sweep of a cluster finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Pages that its nodes are in.
    pub pages: u64,
    /// Those with a node that is stepped.
    pub stepped_pages: u64,
    /// Nodes that fall to STALE or OFFLINE.
    pub steps: u64,
    /// Nodes that are deregistered.
    pub deregistered: u64,
}

/// What a sweep of a cluster with these nodes that is signed at `now` finds.
#[must_use]
pub fn extent(nodes: &[Arc<Node>], params: &Params, now: UnixSeconds) -> Extent {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let stepped: Vec<_> = nodes.iter().filter(|n| may_step(n, params, now)).collect();
    // From OFFLINE there is one step.
    let offline = |n: &&&Arc<Node>| n.chain.recorded_state == NodeState::Offline;
    let deregistered = stepped.iter().filter(offline).count();
    Extent {
        pages: pages(nodes.iter()),
        stepped_pages: pages(stepped.iter().copied()),
        steps: count(stepped.len().saturating_sub(deregistered)),
        deregistered: count(deregistered),
    }
}

/// The contract counts whole seconds of its block's time, which may be a little behind.
const PRUNE_SLACK_SECONDS: u64 = 15;
/// Most that a gateway lets another one go before it.
const MOST_TURN_SECONDS: u64 = 600;

/// Whether a node that has been DEREGISTERED since one of these times is past `retention` at `now` (block time). Of several
/// gateways each waits for another part of a hundredth of the retention, at most ten minutes, so that one of them does it:
/// the others find nothing left.
#[must_use]
pub fn prune_due(since: &[UnixSeconds], retention: u32, address: &str, now: UnixSeconds) -> bool {
    let most = (u64::from(retention) / 100).clamp(1, MOST_TURN_SECONDS);
    let turn = address
        .bytes()
        .fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)))
        .checked_rem(most)
        .unwrap_or(0);
    let after = u64::from(retention)
        .saturating_add(PRUNE_SLACK_SECONDS)
        .saturating_add(turn);
    since.iter().any(|at| now.since(*at) > after)
}

#[cfg(test)]
mod tests {
    use hpc_schema::registry::{Drain, RelayView};

    use super::*;
    use crate::registry::Registry;
    use crate::registry::scene::view;

    fn node(id: &str, state: NodeState, last: u64) -> RelayView {
        RelayView {
            node_id: id.parse().unwrap(),
            recorded_state: state,
            state,
            last_heartbeat: UnixSeconds(last),
            ..view()
        }
    }

    fn known(views: Vec<RelayView>) -> Vec<Arc<Node>> {
        let registry = Registry::new("c", "k");
        let cluster = "hpc-cluster-1".parse().unwrap();
        for v in views {
            registry.set_node(&cluster, v, 1, UnixSeconds(0));
        }
        registry.nodes()
    }

    fn sweep_due(
        nodes: &[Arc<Node>],
        held: &BTreeSet<(ClusterId, NodeId)>,
        params: &Params,
        now: UnixSeconds,
    ) -> Option<ClusterId> {
        let mut free = sweeps(nodes, held, params, now)
            .into_iter()
            .filter(|(_, free)| *free);
        free.next().map(|(cluster, _)| cluster)
    }

    #[test]
    fn every_cluster_that_needs_a_sweep_is_told() {
        let registry = Registry::new("c", "k");
        for (cluster, last) in [
            ("hpc-cluster-1", 1_000),
            ("hpc-cluster-2", 1_990),
            ("hpc-cluster-3", 900),
        ] {
            let silent = node("node-a", NodeState::Active, last);
            registry.set_node(&cluster.parse().unwrap(), silent, 1, UnixSeconds(0));
        }
        let p = Params::default();
        let named = |c: &str| c.parse::<ClusterId>().unwrap();
        let held = BTreeSet::from([(named("hpc-cluster-3"), "node-a".parse().unwrap())]);
        let due = sweeps(&registry.nodes(), &held, &p, UnixSeconds(2_000));
        let wanted = [(named("hpc-cluster-1"), true), (named("hpc-cluster-3"), false)];
        assert_eq!(due, BTreeMap::from(wanted));
    }

    #[test]
    fn a_sweep_is_as_large_as_the_clusters_pages_and_those_that_lapse_while_it_is_under_way() {
        let registry = Registry::new("c", "k");
        for (cluster, name, page, last, offline) in [
            ("hpc-cluster-1", "node-a", 0, 1_000, None),
            ("hpc-cluster-1", "node-b", 2, 1_870, None),
            ("hpc-cluster-1", "node-c", 2, 1_990, None),
            ("hpc-cluster-1", "node-d", 3, 1_990, None),
            ("hpc-cluster-2", "node-a", 1, 1_000, None),
            ("hpc-cluster-3", "node-a", 0, 1_000, None),
            ("hpc-cluster-3", "node-b", 1, 9, Some(1_000)),
        ] {
            let state = offline.map_or(NodeState::Active, |_| NodeState::Offline);
            let silent = RelayView {
                page,
                offline_since: offline.map(UnixSeconds),
                ..node(name, state, last)
            };
            registry.set_node(&cluster.parse().unwrap(), silent, 1, UnixSeconds(0));
        }
        let of = |cluster: &str, now| {
            let cluster: ClusterId = cluster.parse().unwrap();
            let mut nodes = registry.nodes();
            nodes.retain(|n| n.cluster_id == cluster);
            let found = extent(&nodes, &Params::default(), UnixSeconds(now));
            [found.pages, found.stepped_pages, found.steps, found.deregistered]
        };
        assert_eq!(of("hpc-cluster-1", 1_980), [3, 2, 2, 0]);
        assert_eq!(of("hpc-cluster-2", 1_980), [1, 1, 1, 0]);
        assert_eq!(of("hpc-cluster-3", 1_980), [2, 1, 1, 0]);
        assert_eq!(of("hpc-cluster-3", 9_000), [2, 2, 1, 1]);
        assert_eq!(of("hpc-cluster-4", 1_980), [0; 4]);
    }

    #[test]
    fn thresholds_are_strict() {
        let p = Params::default();
        let nodes = known(vec![node("node-a", NodeState::Active, 1000)]);
        assert_eq!(sweep_due(&nodes, &BTreeSet::new(), &p, UnixSeconds(1120)), None);
        assert!(sweep_due(&nodes, &BTreeSet::new(), &p, UnixSeconds(1121)).is_some());
        let pending = known(vec![node("node-a", NodeState::Pending, 0)]);
        assert_eq!(
            sweep_due(&pending, &BTreeSet::new(), &p, UnixSeconds(1_000_000)),
            None
        );
    }

    #[test]
    fn a_node_whose_report_has_not_ended_is_not_swept() {
        let p = Params::default();
        let nodes = known(vec![
            node("node-a", NodeState::Active, 1000),
            node("node-b", NodeState::Active, 1000),
        ]);
        let held = BTreeSet::from([("hpc-cluster-1".parse().unwrap(), "node-b".parse().unwrap())]);
        assert_eq!(sweep_due(&nodes, &held, &p, UnixSeconds(2000)), None);
        // A held report of a node that the sweep would not step is no hindrance.
        let nodes = known(vec![
            node("node-a", NodeState::Active, 1000),
            node("node-b", NodeState::Active, 1990),
        ]);
        assert!(sweep_due(&nodes, &held, &p, UnixSeconds(2000)).is_some());
    }

    #[test]
    fn a_node_that_a_sweep_would_reach_before_its_report_is_waited_for_too() {
        let p = Params::default();
        let nodes = known(vec![
            node("node-a", NodeState::Active, 1000),
            node("node-b", NodeState::Active, 1890),
        ]);
        let held = BTreeSet::from([("hpc-cluster-1".parse().unwrap(), "node-b".parse().unwrap())]);
        assert!(sweep_due(&nodes, &held, &p, UnixSeconds(1995)).is_some());
        assert_eq!(
            sweep_due(&nodes, &held, &p, UnixSeconds(2000)),
            None,
            "stale at 2011"
        );
        assert!(sweep_due(&nodes, &BTreeSet::new(), &p, UnixSeconds(2000)).is_some());
    }

    #[test]
    fn a_record_is_pruned_after_its_retention_and_each_gateway_waits_for_its_own_turn() {
        let at = UnixSeconds(1_000);
        let due = |address: &str, now| prune_due(&[at], 86_400, address, UnixSeconds(now));
        assert!(!prune_due(&[], 86_400, "a", UnixSeconds(u64::MAX)));
        let first = |address: &str| (1_000..200_000).find(|now| due(address, *now)).unwrap();
        let turns = ["wasm1a", "wasm1b", "wasm1c"].map(first);
        for turn in turns {
            assert!(
                (1_000 + 86_400 + 15..1_000 + 86_400 + 15 + 601).contains(&turn),
                "{turn}"
            );
        }
        assert!(turns[0] != turns[1] && turns[1] != turns[2], "{turns:?}");
    }

    #[test]
    fn deregistration_needs_offline_on_record_and_no_protection() {
        let p = Params::default();
        let mut v = node("node-a", NodeState::Offline, 1000);
        let at = UnixSeconds(1000 + 3601);
        assert_eq!(sweep_due(&known(vec![v.clone()]), &BTreeSet::new(), &p, at), None);
        v.offline_since = Some(UnixSeconds(1301));
        assert!(sweep_due(&known(vec![v.clone()]), &BTreeSet::new(), &p, at).is_some());
        v.drain = Some(Drain {
            ordered_by: "o".into(),
            ordered_at: UnixSeconds(900),
            until: at.plus(1),
            reason: None,
        });
        assert_eq!(sweep_due(&known(vec![v]), &BTreeSet::new(), &p, at), None);
    }
}
