use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hpc_schema::id::ClusterId;
use hpc_schema::registry::Params;
use hpc_schema::report::batch::PAGE_SLOTS;
use hpc_schema::time::UnixSeconds;

use super::duty::would_step;
use crate::registry::Node;

/// What else is in the pages of some nodes. Pure.
#[derive(Debug)]
pub(super) struct Beside {
    clusters: HashMap<ClusterId, Chosen>,
    until: UnixSeconds,
    stepping: u64,
}

/// What is chosen of a cluster.
#[derive(Debug, Default)]
struct Chosen {
    /// The slots up to the last one that a known node has, of each page.
    pages: BTreeMap<u16, u64>,
    /// Page and slot of each node.
    nodes: HashSet<(u16, u8)>,
    /// The last page of the cluster.
    last: u16,
}

impl Beside {
    /// In the pages of `chosen`; states are looked at up to `until` (UNIX seconds). All nodes are to be seen, one after another.
    pub(super) fn of(chosen: &[&Arc<Node>], until: u64) -> Self {
        let mut clusters: HashMap<ClusterId, Chosen> = HashMap::new();
        for group in chosen.chunk_by(|a, b| a.cluster_id == b.cluster_id) {
            let Some(first) = group.first() else { continue };
            let of = clusters.entry(first.cluster_id.clone()).or_default();
            for node in group {
                of.pages.insert(node.chain.page, 0);
                of.nodes.insert((node.chain.page, node.chain.slot));
            }
        }
        Self {
            clusters,
            until: UnixSeconds(until),
            stepping: 0,
        }
    }

    /// One of all nodes.
    pub(super) fn see(&mut self, node: &Node, params: &Params) {
        let Some(of) = self.clusters.get_mut(&node.cluster_id) else {
            return;
        };
        let (page, slot) = (node.chain.page, node.chain.slot);
        of.last = of.last.max(page);
        let Some(used) = of.pages.get_mut(&page) else {
            return;
        };
        *used = (*used).max(u64::from(slot).saturating_add(1));
        if !of.nodes.contains(&(page, slot)) && would_step(node, params, self.until) {
            self.stepping = self.stepping.saturating_add(1);
        }
    }

    /// How many nodes beside those chosen may change state: they cost gas that a simulation now does not see.
    pub(super) fn stepping(&self) -> u64 {
        self.stepping
    }

    /// Slots without one of those chosen, as far as the pages are long.
    pub(super) fn slots(&self) -> u64 {
        let mut slots: u64 = 0;
        for of in self.clusters.values() {
            for (page, used) in &of.pages {
                // All pages of a cluster but its last have been full once, and a page never becomes shorter.
                let full = *page < of.last;
                slots = slots.saturating_add(if full { u64::from(PAGE_SLOTS) } else { *used });
            }
        }
        let mine: usize = self.clusters.values().map(|of| of.nodes.len()).sum();
        slots.saturating_sub(u64::try_from(mine).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use hpc_schema::registry::RelayView;

    use super::*;
    use crate::registry::Registry;
    use crate::registry::scene::view;

    #[test]
    fn a_page_is_as_long_as_its_last_slot_and_full_where_another_one_follows() {
        let registry = Registry::new("c", "k");
        for (cluster, name, page, slot, last_heartbeat) in [
            ("hpc-cluster-1", "node-a", 0, 0, 1_000),
            ("hpc-cluster-1", "node-b", 0, 9, 1_000),
            ("hpc-cluster-1", "node-c", 1, 0, 1_000),
            // Silent for longer than the others.
            ("hpc-cluster-1", "node-d", 1, 4, 100),
            ("hpc-cluster-2", "node-a", 0, 2, 1_000),
            ("hpc-cluster-2", "node-b", 5, 0, 1_000),
        ] {
            let node = RelayView {
                node_id: name.parse().unwrap(),
                page,
                slot,
                last_heartbeat: UnixSeconds(last_heartbeat),
                ..view()
            };
            registry.set_node(&cluster.parse().unwrap(), node, 1, UnixSeconds(0));
        }
        let nodes = registry.nodes();
        let of = |chosen: &[(&str, &str)]| {
            let is = |n: &&Arc<Node>| chosen.contains(&(n.cluster_id.as_str(), n.node_id.as_str()));
            let chosen: Vec<_> = nodes.iter().filter(is).collect();
            let mut beside = Beside::of(&chosen, 1_010);
            nodes.iter().for_each(|n| beside.see(n, &Params::default()));
            (beside.slots(), beside.stepping())
        };
        assert_eq!(of(&[("hpc-cluster-1", "node-a")]), (63, 0));
        assert_eq!(of(&[("hpc-cluster-1", "node-c")]), (4, 1));
        let all = ["node-a", "node-b", "node-c", "node-d"].map(|node| ("hpc-cluster-1", node));
        assert_eq!(of(&all), (62 + 3, 0));
        assert_eq!(of(&[("hpc-cluster-2", "node-b")]), (0, 0));
    }
}
