use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hpc_schema::id::ClusterId;
use hpc_schema::registry::Params;
use hpc_schema::report::batch::PAGE_SLOTS;
use hpc_schema::time::UnixSeconds;

use super::duty::would_step;
use crate::registry::Node;

/// What else is in the pages of some nodes.
#[derive(Debug)]
pub(super) struct Beside<'n> {
    /// The other nodes there.
    nodes: Vec<&'n Arc<Node>>,
    /// Slots without one of those chosen, as far as the pages are long.
    pub(super) slots: u64,
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

/// What is in the pages of `chosen` beside them.
pub(super) fn beside<'n>(known: &'n [Arc<Node>], chosen: &[&Arc<Node>]) -> Beside<'n> {
    let mut clusters: HashMap<&ClusterId, Chosen> = HashMap::new();
    for node in chosen {
        let of = clusters.entry(&node.cluster_id).or_default();
        of.pages.insert(node.chain.page, 0);
        of.nodes.insert((node.chain.page, node.chain.slot));
    }
    let mut nodes = Vec::new();
    for group in known.chunk_by(|a, b| a.cluster_id == b.cluster_id) {
        let of = group
            .first()
            .and_then(|first| clusters.get_mut(&first.cluster_id));
        let Some(of) = of else { continue };
        for node in group {
            let (page, slot) = (node.chain.page, node.chain.slot);
            of.last = of.last.max(page);
            let Some(used) = of.pages.get_mut(&page) else {
                continue;
            };
            *used = (*used).max(u64::from(slot).saturating_add(1));
            if !of.nodes.contains(&(page, slot)) {
                nodes.push(node);
            }
        }
    }
    let mut slots: u64 = 0;
    for of in clusters.values() {
        for (page, used) in &of.pages {
            // All pages of a cluster but its last have been full once, and a page never becomes shorter.
            let full = *page < of.last;
            slots = slots.saturating_add(if full { u64::from(PAGE_SLOTS) } else { *used });
        }
    }
    let mine: usize = clusters.values().map(|of| of.nodes.len()).sum();
    Beside {
        nodes,
        slots: slots.saturating_sub(u64::try_from(mine).unwrap_or(u64::MAX)),
    }
}

/// How many of those beside may change state before `until` (UNIX seconds): they cost gas that a simulation now does not see.
pub(super) fn may_step(beside: &Beside<'_>, params: &Params, until: u64) -> u64 {
    let until = UnixSeconds(until);
    let steps = beside.nodes.iter().filter(|n| would_step(n, params, until));
    u64::try_from(steps.count()).unwrap_or(u64::MAX)
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
            let beside = beside(&nodes, &chosen);
            let steps = may_step(&beside, &Params::default(), 1_010);
            (beside.slots, beside.nodes.len(), steps)
        };
        assert_eq!(of(&[("hpc-cluster-1", "node-a")]), (63, 1, 0));
        assert_eq!(of(&[("hpc-cluster-1", "node-c")]), (4, 1, 1));
        let all = ["node-a", "node-b", "node-c", "node-d"].map(|node| ("hpc-cluster-1", node));
        assert_eq!(of(&all), (62 + 3, 0, 0));
        assert_eq!(of(&[("hpc-cluster-2", "node-b")]), (0, 0, 0));
    }
}
