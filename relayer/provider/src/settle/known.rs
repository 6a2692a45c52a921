use std::collections::HashMap;

use hpc_schema::id::ClusterId;
use hpc_schema::node::NodeState;
use hpc_schema::registry::Params;

use super::plan::LAPSE_MARGIN_MS;
use crate::registry::Node;

/// While a state is about to lapse, the queue is looked at so often: each look reads all of it.
const LAPSE_LOOK_MS: u64 = 5_000;

/// What the planner has to know of all nodes, who are seen one after another. Pure.
#[derive(Debug)]
pub(super) struct Known {
    now_ms: u64,
    /// When the first state lapses from now on, milliseconds.
    first_lapse: Option<u64>,
    /// How many live nodes each page has of which no report waits.
    absent: HashMap<ClusterId, HashMap<u16, u16>>,
}

impl Known {
    /// Nobody yet, at this time.
    pub(super) fn at(now_ms: u64) -> Self {
        Self {
            now_ms,
            first_lapse: None,
            absent: HashMap::new(),
        }
    }

    /// One of them; each is seen once, and before any that [`Self::waits`].
    pub(super) fn see(&mut self, node: &Node, params: &Params) {
        if let Some(at) = lapses_at(node, params).filter(|at| *at > self.now_ms) {
            self.first_lapse = Some(self.first_lapse.map_or(at, |first| first.min(at)));
        }
        if !is_live(node) {
            return;
        }
        // Most have their cluster there already, and need no copy of its name.
        if !self.absent.contains_key(&node.cluster_id) {
            self.absent.insert(node.cluster_id.clone(), HashMap::new());
        }
        if let Some(pages) = self.absent.get_mut(&node.cluster_id) {
            let of_page = pages.entry(node.chain.page).or_default();
            *of_page = of_page.saturating_add(1);
        }
    }

    /// A report of this one waits.
    pub(super) fn waits(&mut self, node: &Node) {
        if !is_live(node) {
            return;
        }
        let pages = self.absent.get_mut(&node.cluster_id);
        if let Some(of_page) = pages.and_then(|pages| pages.get_mut(&node.chain.page)) {
            *of_page = of_page.saturating_sub(1);
        }
    }

    /// Live nodes of a page of which no report waits.
    pub(super) fn absent(&self, cluster: &ClusterId, page: u16) -> u16 {
        let of_page = self.absent.get(cluster).and_then(|pages| pages.get(&page));
        of_page.copied().unwrap_or(0)
    }

    /// When a report that comes from now on may have to go first, for a state that lapses: settlement looks then, and every
    /// few seconds until it has lapsed.
    pub(super) fn next_lapse(&self) -> Option<u64> {
        let first = self.first_lapse?.saturating_sub(LAPSE_MARGIN_MS);
        Some(first.max(self.now_ms.saturating_add(LAPSE_LOOK_MS)))
    }
}

/// Whether the chain's record has a node as one that reports.
fn is_live(node: &Node) -> bool {
    matches!(
        node.chain.recorded_state,
        NodeState::Active | NodeState::Draining | NodeState::Drained
    )
}

/// When a node's state lapses without another report, or has lapsed, milliseconds.
pub(super) fn lapses_at(node: &Node, params: &Params) -> Option<u64> {
    let state = node.chain.recorded_state;
    let lapses = is_live(node) || matches!(state, NodeState::Stale | NodeState::Offline);
    let at = node
        .chain
        .last_heartbeat
        .plus(u64::from(params.heartbeat_timeout));
    lapses.then(|| at.0.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use hpc_schema::registry::RelayView;
    use hpc_schema::time::UnixSeconds;

    use super::*;
    use crate::registry::Registry;
    use crate::registry::scene::view;

    #[test]
    fn a_report_may_have_to_go_first_from_a_while_before_the_first_state_lapses_until_it_has() {
        let registry = Registry::new("c", "k");
        let params = Params::default();
        let timeout = u64::from(params.heartbeat_timeout) * 1_000;
        for (name, recorded_state, last_heartbeat) in [
            ("node-a", NodeState::Active, 1_000),
            ("node-b", NodeState::Drained, 1_300),
            ("node-c", NodeState::Pending, 900),
            ("node-d", NodeState::Offline, 10),
        ] {
            let node = RelayView {
                node_id: name.parse().unwrap(),
                recorded_state,
                last_heartbeat: UnixSeconds(last_heartbeat),
                ..view()
            };
            registry.set_node(&"hpc-cluster-1".parse().unwrap(), node, 1, UnixSeconds(0));
        }
        let nodes = registry.nodes();
        let next = |now| {
            let mut known = Known::at(now);
            nodes.iter().for_each(|n| known.see(n, &params));
            known.next_lapse()
        };
        let first = 1_000_000 + timeout;
        let margin = LAPSE_MARGIN_MS;
        assert_eq!(next(1_000_000), Some(first - margin));
        assert_eq!(next(first - 9_000), Some(first - 9_000 + LAPSE_LOOK_MS));
        assert_eq!(next(first), Some(first + 300_000 - margin));
        assert_eq!(next(first + 300_000), None);
    }

    #[test]
    fn a_page_lacks_the_live_nodes_of_which_no_report_waits() {
        let registry = Registry::new("c", "k");
        for (slot, page, name, recorded_state) in [
            (0, 0, "node-a", NodeState::Active),
            (1, 0, "node-b", NodeState::Draining),
            (2, 0, "node-c", NodeState::Stale),
            (3, 0, "node-d", NodeState::Pending),
            (0, 1, "node-e", NodeState::Drained),
        ] {
            let node = RelayView {
                node_id: name.parse().unwrap(),
                page,
                slot,
                recorded_state,
                ..view()
            };
            registry.set_node(&"hpc-cluster-1".parse().unwrap(), node, 1, UnixSeconds(0));
        }
        let (nodes, cluster): (_, ClusterId) = (registry.nodes(), "hpc-cluster-1".parse().unwrap());
        let mut known = Known::at(0);
        nodes.iter().for_each(|n| known.see(n, &Params::default()));
        let of = |known: &Known| [0, 1, 2].map(|page| known.absent(&cluster, page));
        assert_eq!(of(&known), [2, 1, 0]);
        // Who is not live was not waited for.
        for name in ["node-b", "node-c"] {
            let waits = nodes.iter().find(|n| n.node_id.as_str() == name).unwrap();
            known.waits(waits);
        }
        assert_eq!(of(&known), [1, 1, 0]);
    }
}
