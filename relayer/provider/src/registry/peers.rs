use hpc_schema::gateway::Peer;
use hpc_schema::id::NodeId;
use hpc_schema::time::UnixSeconds;

/// How long a node keeps its neighbours.
const ROTATE_SECONDS: u64 = 300;

/// `k` neighbours of `node` among `peers` (sorted by id): the next ones round the circle, moving on with
/// time, so that in the end every pair gets measured.
pub(super) fn neighbours(peers: &[Peer], node: &NodeId, k: u8, now: UnixSeconds) -> Vec<Peer> {
    let after = peers.partition_point(|p| p.node_id <= *node);
    let among = after
        .checked_sub(1)
        .and_then(|at| peers.get(at))
        .is_some_and(|p| p.node_id == *node);
    let others = peers.len() - usize::from(among);
    let k = usize::from(k).min(others);
    if k == 0 {
        return Vec::new();
    }
    // Round the circle of the others the node itself comes last: its place is passed over by counting without it.
    let round = usize::try_from(now.0 / ROTATE_SECONDS).unwrap_or(0);
    let skipped = round.wrapping_mul(k) % others;
    (0..k)
        .filter_map(|n| peers.get((after + (skipped + n) % others) % peers.len()))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::identity::Seed;

    fn peers(n: u8) -> Vec<Peer> {
        (0..n)
            .map(|i| Peer {
                node_id: format!("node-{i:03}").parse().unwrap(),
                address: "10.0.0.1".into(),
                port: 9001,
                public_key: *Seed::from_bytes(&[i + 1; 32]).unwrap().public(),
            })
            .collect()
    }

    #[test]
    fn nobody_measures_itself_and_in_time_every_pair_is_measured() {
        let peers = peers(10);
        let node: NodeId = "node-003".parse().unwrap();
        let mut seen = BTreeSet::new();
        for round in 0..3 {
            let chosen = neighbours(&peers, &node, 3, UnixSeconds(round * ROTATE_SECONDS));
            assert_eq!(chosen.len(), 3);
            seen.extend(chosen.into_iter().map(|p| p.node_id));
        }
        assert_eq!(seen.len(), 9);
        assert!(!seen.contains(&node));
    }

    #[test]
    fn few_peers_give_few_neighbours() {
        let node: NodeId = "node-000".parse().unwrap();
        assert!(neighbours(&peers(1), &node, 3, UnixSeconds(0)).is_empty());
        assert!(neighbours(&[], &node, 3, UnixSeconds(0)).is_empty());
        assert_eq!(neighbours(&peers(3), &node, 3, UnixSeconds(700)).len(), 2);
        // A node that is not among the peers has neighbours all the same.
        assert_eq!(
            neighbours(&peers(3), &"zzzz".parse().unwrap(), 2, UnixSeconds(0)).len(),
            2
        );
    }
}
