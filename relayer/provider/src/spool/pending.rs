use std::collections::{HashMap, VecDeque};

use hpc_schema::id::{ClusterId, NodeId};
use tokio::time::Instant;

use super::accept::Accept;
use super::group::Made;

type Key = (ClusterId, NodeId);

/// Reports that are on disk in the journal and not in the database yet: the newest of each node, in the order in which the
/// nodes came. Those before it are counted in it, as they would be in the queue; one of an earlier registration stays a
/// report of its own, before it.
#[derive(Debug, Default)]
pub(super) struct Pending {
    nodes: HashMap<ClusterId, HashMap<NodeId, Of>>,
    count: usize,
    /// With the group by which the node came; of one that was taken or put back meanwhile the entry says nothing.
    order: VecDeque<(u64, Key)>,
}

/// What waits of a node.
#[derive(Debug)]
pub(super) struct Of {
    /// The first group with a report of the node that is not in the database.
    since: u64,
    arrived: Instant,
    reports: Vec<Made>,
}

/// What is taken out: whole groups, as far as the nodes that they brought go.
#[derive(Debug, Default)]
pub(super) struct Taken {
    of: Vec<Of>,
    /// All groups up to this one are in the database once it is; none: all that there are.
    pub(super) upto: Option<u64>,
}

impl Of {
    fn add(&mut self, mut new: Made) {
        if let Some(before) = self.reports.pop_if(|before| before.epoch == new.epoch) {
            new.queued_at = before.queued_at;
            new.superseded_from = before.superseded_from.or(Some(before.sequence));
            let counted = before.superseded_count.saturating_add(1);
            new.superseded_count = new.superseded_count.saturating_add(counted);
        }
        self.reports.push(new);
    }
}

impl Pending {
    /// Takes in a report of this group, which came after all that are here.
    pub(super) fn add(&mut self, group: u64, new: Made, now: Instant) {
        // Mostly one of the node is there.
        if let Some(of) = self.get_mut(&new.cluster_id, &new.node_id) {
            return of.add(new);
        }
        let key = (new.cluster_id.clone(), new.node_id.clone());
        self.order.push_back((group, key.clone()));
        let of = Of {
            since: group,
            arrived: now,
            reports: vec![new],
        };
        self.insert(key, of);
    }

    fn get(&self, (cluster, node): &Key) -> Option<&Of> {
        self.nodes.get(cluster)?.get(node)
    }

    fn get_mut(&mut self, cluster: &ClusterId, node: &NodeId) -> Option<&mut Of> {
        self.nodes.get_mut(cluster)?.get_mut(node)
    }

    fn insert(&mut self, (cluster, node): Key, of: Of) {
        if self.nodes.entry(cluster).or_default().insert(node, of).is_none() {
            self.count = self.count.saturating_add(1);
        }
    }

    fn remove(&mut self, (cluster, node): &Key) -> Option<Of> {
        let removed = self.nodes.get_mut(cluster)?.remove(node)?;
        self.count = self.count.saturating_sub(1);
        Some(removed)
    }

    /// Nodes with a report here.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// When the first of them came.
    pub(super) fn first(&mut self) -> Option<Instant> {
        self.settle_order();
        let (_, key) = self.order.front()?;
        self.get(key).map(|of| of.arrived)
    }

    /// Takes out the nodes that came until `before`, about `most` of them, and all that came with the last group of these.
    pub(super) fn take(&mut self, before: Instant, most: usize) -> Taken {
        let mut taken = Taken::default();
        let mut last = None;
        loop {
            self.settle_order();
            let Some((since, key)) = self.order.front() else {
                return taken;
            };
            let more = taken.of.len() < most && self.get(key).is_some_and(|of| of.arrived <= before);
            if !more && last != Some(*since) {
                taken.upto = Some(since.saturating_sub(1));
                return taken;
            }
            last = Some(*since);
            if let Some((_, key)) = self.order.pop_front()
                && let Some(of) = self.remove(&key)
            {
                taken.of.push(of);
            }
        }
    }

    /// What could not be taken in after all, before what came meanwhile.
    pub(super) fn put_back(&mut self, taken: Taken) {
        for of in taken.of.into_iter().rev() {
            let Some(first) = of.reports.first() else { continue };
            let key = (first.cluster_id.clone(), first.node_id.clone());
            self.order.push_front((of.since, key.clone()));
            let mut whole = of;
            for newer in self.remove(&key).into_iter().flat_map(|of| of.reports) {
                whole.add(newer);
            }
            self.insert(key, whole);
        }
    }

    /// The first of the order is one that is there.
    fn settle_order(&mut self) {
        while let Some((since, key)) = self.order.front()
            && self.get(key).is_none_or(|of| of.since != *since)
        {
            self.order.pop_front();
        }
    }
}

impl Taken {
    /// In rounds of at most one for each node: what stands in a later one comes later.
    pub(super) fn rounds(&self) -> Vec<Vec<&Accept>> {
        let mut rounds: Vec<Vec<&Accept>> = Vec::new();
        for (at, report) in self.of.iter().flat_map(|of| of.reports.iter().enumerate()) {
            if rounds.len() <= at {
                rounds.resize_with(at.saturating_add(1), Vec::new);
            }
            if let Some(round) = rounds.get_mut(at) {
                round.push(report);
            }
        }
        rounds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::report;
    use super::*;

    type Seen = (u64, u32, Option<u32>, u64, u64);

    fn seen(taken: &Taken) -> Vec<Vec<Seen>> {
        let row = |r: &&Accept| {
            (
                r.epoch,
                r.sequence,
                r.superseded_from,
                r.superseded_count,
                r.queued_at,
            )
        };
        let rounds = taken.rounds();
        rounds
            .iter()
            .map(|round| round.iter().map(row).collect())
            .collect()
    }

    fn of(node: &str, sequence: u32) -> Made {
        Box::new(Accept {
            node_id: node.parse().unwrap(),
            ..report(1, sequence, u64::from(sequence))
        })
    }

    #[test]
    fn the_newest_of_a_node_counts_those_before_it_and_an_earlier_registrations_stays() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        for (group, (epoch, sequence)) in (1..).zip([(1, 5), (1, 7), (1, 8), (2, 1), (2, 4)]) {
            pending.add(group, Box::new(report(epoch, sequence, u64::from(sequence))), now);
        }
        assert_eq!(pending.len(), 1);
        let taken = pending.take(now, 10);
        assert_eq!(seen(&taken), [[(1, 8, Some(5), 2, 5)], [(2, 4, Some(1), 1, 1)]]);
        assert_eq!((taken.upto, pending.len(), pending.first()), (None, 0, None));
    }

    #[test]
    fn what_is_put_back_stands_before_what_came_meanwhile() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        pending.add(1, Box::new(report(1, 5, 50)), now);
        pending.add(2, Box::new(report(1, 6, 60)), now);
        pending.add(2, of("node-0002", 1), now);
        let taken = pending.take(now, 1);
        assert_eq!(taken.upto, Some(1));
        pending.add(3, of("node-0003", 1), now);
        pending.add(4, Box::new(report(1, 7, 70)), now);
        pending.add(4, Box::new(report(1, 9, 90)), now);
        pending.put_back(taken);
        assert_eq!(pending.len(), 3);
        let taken = pending.take(now, 1);
        assert_eq!(seen(&taken), [[(1, 9, Some(5), 3, 50)]]);
        assert_eq!(taken.upto, Some(1), "node 2 came with the second");
        let taken = pending.take(now, 1);
        assert_eq!((seen(&taken).concat().len(), taken.upto), (1, Some(2)));
        assert_eq!(pending.take(now, 9).upto, None);
    }

    #[test]
    fn who_came_later_waits_and_those_of_one_group_go_together() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for node in 1..=5 {
            pending.add(7, of(&format!("node-{node:04}"), 1), now);
        }
        pending.add(8, of("node-0006", 1), later);
        let taken = pending.take(now, 2);
        assert_eq!((taken.rounds().concat().len(), taken.upto), (5, Some(7)));
        let none = pending.take(now, 2);
        assert_eq!((none.rounds().len(), none.upto), (0, Some(7)));
        assert_eq!(pending.first(), Some(later));
        assert_eq!(pending.take(later, 2).rounds().concat().len(), 1);
    }
}
