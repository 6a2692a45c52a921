use std::collections::HashMap;
use std::sync::Arc;

use hpc_schema::id::NodeId;

use super::super::node::Node;

/// The nodes of a cluster: found by their ids, and gone through piece by piece, which a map by ids alone cannot be.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Each node keeps its place; that of one that is gone is the next new one's.
    places: Vec<Option<Arc<Node>>>,
    free: Vec<usize>,
    at: HashMap<NodeId, usize>,
}

impl Members {
    pub(super) fn get(&self, node: &NodeId) -> Option<&Arc<Node>> {
        self.places.get(*self.at.get(node)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, node: &NodeId) -> Option<&mut Arc<Node>> {
        self.places.get_mut(*self.at.get(node)?)?.as_mut()
    }

    /// Puts in a node that is not there; what is known of one that is changes in its place ([`Self::get_mut`]).
    pub(super) fn add(&mut self, id: NodeId, node: Arc<Node>) {
        let freed = self.free.pop();
        match freed.and_then(|at| self.places.get_mut(at).map(|place| (at, place))) {
            Some((at, place)) => {
                *place = Some(node);
                self.at.insert(id, at);
            }
            None => {
                self.at.insert(id, self.places.len());
                self.places.push(Some(node));
            }
        }
    }

    /// Takes out the node of this id; whether there was one.
    pub(super) fn remove(&mut self, node: &NodeId) -> bool {
        let Some(at) = self.at.remove(node) else {
            return false;
        };
        if let Some(place) = self.places.get_mut(at) {
            *place = None;
            self.free.push(at);
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.places.iter().flatten()
    }

    /// The places from this one on, at most so many; none after the last. Whoever goes through all of them sees each node that
    /// is there all the while once.
    pub(super) fn piece(&self, from: usize, most: usize) -> &[Option<Arc<Node>>] {
        let to = from.saturating_add(most).min(self.places.len());
        self.places.get(from..to).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use hpc_schema::registry::RelayView;
    use hpc_schema::time::UnixSeconds;

    use crate::registry::Registry;
    use crate::registry::scene::view;

    #[tokio::test]
    async fn who_goes_through_all_nodes_sees_each_that_stays_once_whoever_comes_and_goes() {
        let registry = Registry::new("c", "k");
        let clusters = ["hpc-cluster-1", "hpc-cluster-2"].map(|c| c.parse().unwrap());
        let put = |cluster, n: usize| {
            let node = RelayView {
                node_id: format!("node-{n:04}").parse().unwrap(),
                ..view()
            };
            registry.set_node(cluster, node, 1, UnixSeconds(0));
        };
        let remove = |cluster, n: usize| {
            let node = format!("node-{n:04}").parse().unwrap();
            assert!(registry.remove_node(cluster, &node) && !registry.remove_node(cluster, &node));
        };
        for cluster in &clusters {
            (0..600).for_each(|n| put(cluster, n));
        }
        let changes = async {
            for n in 0..300 {
                remove(&clusters[0], n * 2);
                put(&clusters[0], 1_000 + n);
                put(&clusters[1], n);
                if n % 50 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let mut seen = std::collections::BTreeMap::<String, usize>::new();
        let look = |node: &std::sync::Arc<crate::registry::Node>| {
            let name = format!("{} {}", node.cluster_id, node.node_id);
            *seen.entry(name).or_default() += 1;
        };
        tokio::join!(registry.each(look), changes);
        let stays = (0..300).map(|n| format!("hpc-cluster-1 node-{:04}", n * 2 + 1));
        let stays = stays.chain((0..600).map(|n| format!("hpc-cluster-2 node-{n:04}")));
        for name in stays {
            assert_eq!(seen.get(&name), Some(&1), "{name}");
        }
        assert!(seen.values().all(|times| *times == 1));
        assert_eq!(registry.count(), 1_200);
        // Those that came have the places of those that went, and are found.
        let found = registry.those(|n| n.node_id.as_str() >= "node-1000").await;
        assert_eq!(found.len(), 300);
        assert!(
            found
                .iter()
                .all(|n| registry.node(&n.cluster_id, &n.node_id).is_some())
        );
    }
}
