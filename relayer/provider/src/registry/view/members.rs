use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hpc_schema::id::NodeId;

use super::super::node::Node;

/// Stays that have begun, of all nodes of all registries: no two are taken for one another.
static STAYS: AtomicU64 = AtomicU64::new(0);

/// Where a node is among those of its cluster, for who asks for it again and again and would look it up by its id each time.
/// It leads to this node for as long as it stays, and to none after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    at: usize,
    stay: u64,
}

/// A place, and who has it.
#[derive(Debug)]
pub(super) struct Spot {
    /// Of whoever has it, or had it last.
    stay: u64,
    pub(super) node: Option<Arc<Node>>,
}

/// The nodes of a cluster: found by their ids, and gone through piece by piece, which a map by ids alone cannot be.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Each node keeps its place; that of one that is gone is the next new one's.
    places: Vec<Spot>,
    free: Vec<usize>,
    at: HashMap<NodeId, usize>,
}

impl Members {
    pub(super) fn get(&self, node: &NodeId) -> Option<&Arc<Node>> {
        self.places.get(*self.at.get(node)?)?.node.as_ref()
    }

    pub(super) fn get_mut(&mut self, node: &NodeId) -> Option<&mut Arc<Node>> {
        self.places.get_mut(*self.at.get(node)?)?.node.as_mut()
    }

    /// Where a node is: as it is held, or looked up and held from then on.
    pub(super) fn place(&self, node: &NodeId, held: &OnceLock<Place>) -> Option<Place> {
        let leads = |place: &&Place| {
            let spot = self.places.get(place.at);
            spot.is_some_and(|spot| spot.stay == place.stay && spot.node.is_some())
        };
        if let Some(place) = held.get().filter(leads) {
            return Some(*place);
        }
        let at = *self.at.get(node)?;
        let stay = self.places.get(at)?.stay;
        let place = Place { at, stay };
        // One that was held of an earlier stay is held still: it leads nowhere, and the node is looked up each time.
        held.get_or_init(|| place);
        Some(place)
    }

    /// Who is at a place that [`Self::place`] has just given.
    pub(super) fn node_at(&self, place: Place) -> Option<&Arc<Node>> {
        self.places.get(place.at)?.node.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn node_at_mut(&mut self, place: Place) -> Option<&mut Arc<Node>> {
        self.places.get_mut(place.at)?.node.as_mut()
    }

    /// Puts in a node that is not there; what is known of one that is changes in its place ([`Self::get_mut`]).
    pub(super) fn add(&mut self, id: NodeId, node: Arc<Node>) {
        let spot = Spot {
            stay: STAYS.fetch_add(1, Ordering::Relaxed),
            node: Some(node),
        };
        let freed = self.free.pop();
        match freed.and_then(|at| self.places.get_mut(at).map(|place| (at, place))) {
            Some((at, place)) => {
                *place = spot;
                self.at.insert(id, at);
            }
            None => {
                self.at.insert(id, self.places.len());
                self.places.push(spot);
            }
        }
    }

    /// Takes out the node of this id; whether there was one.
    pub(super) fn remove(&mut self, node: &NodeId) -> bool {
        let Some(at) = self.at.remove(node) else {
            return false;
        };
        if let Some(place) = self.places.get_mut(at) {
            place.node = None;
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
        self.places.iter().filter_map(|spot| spot.node.as_ref())
    }

    /// The places from this one on, at most so many; none after the last. Whoever goes through all of them sees each node that
    /// is there all the while once.
    pub(super) fn piece(&self, from: usize, most: usize) -> &[Spot] {
        let to = from.saturating_add(most).min(self.places.len());
        self.places.get(from..to).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use hpc_schema::registry::RelayView;
    use hpc_schema::time::UnixSeconds;

    use crate::registry::scene::view;
    use crate::registry::{Registry, Whose};

    #[test]
    fn a_place_that_is_held_leads_to_its_node_while_it_stays_and_never_to_another() {
        let registry = Registry::new("c", "k");
        let clusters = ["hpc-cluster-1", "hpc-cluster-2"].map(|c| c.parse().unwrap());
        let [cluster, other] = &clusters;
        let ids = ["node-0001", "node-0002", "node-0003"].map(|n| n.parse().unwrap());
        let [first, second, third] = &ids;
        let put = |cluster, node: &hpc_schema::id::NodeId| {
            let view = RelayView {
                node_id: node.clone(),
                ..view()
            };
            registry.set_node(cluster, view, 1, UnixSeconds(0)).unwrap();
        };
        let held = [const { OnceLock::new() }; 2];
        let seen = |n: usize| {
            let whose = Whose {
                cluster,
                node: &ids[n],
                held: Some(&held[n]),
            };
            let node = registry.seen(whose).node?;
            let changed = registry.accepted(whose, 1, node.acked + 1, 5, [192, 0, 2, 7].into());
            assert_eq!(changed.seen.node.unwrap().node_id, node.node_id);
            Some(node.node_id.to_string())
        };
        // Of a node that there is not nothing is held.
        assert_eq!(seen(0), None);
        assert!(held[0].get().is_none());
        put(cluster, first);
        put(cluster, second);
        for _ in 0..2 {
            assert_eq!(seen(0).as_deref(), Some("node-0001"));
            assert_eq!(seen(1).as_deref(), Some("node-0002"));
        }
        let before = *held[0].get().unwrap();

        // Another has its place; then it is back at another place.
        assert!(registry.remove_node(cluster, first));
        assert_eq!(seen(0), None);
        put(cluster, third);
        assert_eq!(seen(0), None);
        put(cluster, first);
        assert_eq!(seen(0).as_deref(), Some("node-0001"));
        assert_eq!(held[0].get(), Some(&before));

        // Its place is empty, and it is back at another's.
        assert!(registry.remove_node(cluster, second) && registry.remove_node(cluster, first));
        put(cluster, second);
        assert_eq!(seen(1).as_deref(), Some("node-0002"));
        put(cluster, first);

        // All places are given up and begin anew, here and in another cluster.
        for id in &ids {
            assert!(registry.remove_node(cluster, id));
        }
        put(other, second);
        put(other, third);
        put(cluster, third);
        put(cluster, second);
        assert_eq!((seen(0), seen(1).as_deref()), (None, Some("node-0002")));
        let there = Whose {
            cluster: other,
            node: third,
            held: Some(&held[0]),
        };
        let node = registry.seen(there).node.unwrap();
        assert_eq!(
            node.node_id, *third,
            "what was held in one cluster leads nowhere in another"
        );
        let unheld = registry.seen(Whose::named(cluster, third)).node.unwrap();
        assert_eq!((unheld.node_id == *third, unheld.acked), (true, 0));
    }

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
