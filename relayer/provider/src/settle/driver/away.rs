//! After an outage of the gateway its agents are waited for before anybody counts as silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hpc_schema::id::ClusterId;

use crate::clock::Steady;
use crate::registry::{Node, Registry};

/// Agents that were turned away come again within 30 s; their reports are in the store a moment later, and no sweep goes past
/// those.
const BACK_MS: u64 = 45_000;

/// The clusters whose agents have not had the time to come back.
#[derive(Debug)]
pub(super) struct Away {
    clusters: BTreeSet<ClusterId>,
    until: Steady,
}

impl Away {
    /// Those that a key which takes up settlement waits for: no heartbeat of any node was received for half of the time after
    /// which one counts as silent. Other clusters say nothing of one, for they may be back before settlement is. One of which no
    /// heartbeat is on record is not waited for.
    pub(super) async fn found(registry: &Registry, now_ms: u64, now: Steady) -> Self {
        let mut heard: BTreeMap<ClusterId, u64> = BTreeMap::new();
        let see = |node: &Arc<Node>| {
            let last = heard.entry(node.cluster_id.clone()).or_default();
            *last = node.received_at.max(*last);
        };
        registry.each(see).await;
        let half_ms = u64::from(registry.params().heartbeat_timeout).saturating_mul(1_000) / 2;
        heard.retain(|_, at| *at > 0 && now_ms.saturating_sub(*at) > half_ms);
        Self {
            clusters: heard.into_keys().collect(),
            until: now.after(BACK_MS),
        }
    }

    /// Whether this one's agents are waited for.
    pub(super) fn waits_for(&self, cluster: &ClusterId, now: Steady) -> bool {
        now < self.until && self.clusters.contains(cluster)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;

    use hpc_chain::settle::{EndpointId, Input};
    use hpc_schema::time::UnixSeconds;

    use super::super::tests::parts;
    use super::super::{Driver, Kind};
    use super::*;
    use crate::clock;
    use crate::registry::Tip;
    use crate::registry::scene::view;

    /// A driver that takes up settlement so long after the only node of each of these clusters was heard. By the chain's time
    /// all of them are silent.
    async fn taken_up(dir: &Path, clusters: &[(&str, Option<u64>)]) -> Driver {
        let parts = parts(dir).await;
        let registry = &parts.shared.registry;
        let now = clock::now_ms();
        for (cluster, silent) in clusters {
            let (cluster, node) = (cluster.parse().unwrap(), view());
            let (id, epoch, from) = (node.node_id.clone(), node.epoch, Ipv4Addr::LOCALHOST.into());
            registry.set_node(&cluster, node, 1, UnixSeconds(0));
            if let Some(silent) = silent {
                registry.accepted(&cluster, &id, epoch, 1, now - silent, from);
            }
        }
        registry.set_tip(Tip {
            height: 9,
            time: UnixSeconds(2_000),
            latency_ms: None,
        });
        let mut driver = Driver::resume(parts).await.unwrap();
        let head = Input::Head {
            endpoint: EndpointId(0),
            height: 9,
            block_time_ms: now,
        };
        driver.feed(head).await.unwrap();
        driver
    }

    /// What such a driver does first and once agents are back, before which the clock was put back by so much.
    async fn first(silent_ms: Option<u64>, put_back_ms: u64) -> [Option<Kind>; 2] {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = taken_up(dir.path(), &[("hpc-cluster-1", silent_ms)]).await;
        let (now_ms, now) = (clock::now_ms(), clock::steady());
        let mut does = [None, None];
        let later = BACK_MS + 1_000;
        let times = [(now_ms, now), (now_ms + later - put_back_ms, now.after(later))];
        for (kind, (now_ms, now)) in does.iter_mut().zip(times) {
            *kind = driver.next_job(now_ms, now).await.unwrap().map(|(kind, _)| kind);
        }
        does
    }

    #[tokio::test]
    async fn after_an_outage_nobody_is_swept_before_agents_can_be_back() {
        let sweep = Some(Kind::Sweep);
        assert_eq!(first(Some(360_000), 0).await, [None, sweep]);
        assert_eq!(first(Some(61_000), 0).await, [None, sweep]);
        assert_eq!(first(Some(20_000), 0).await, [sweep, sweep], "heard meanwhile");
        assert_eq!(first(None, 0).await, [sweep, sweep]);
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_when_settlement_was_taken_up_holds_up_no_sweep() {
        let sweep = Some(Kind::Sweep);
        assert_eq!(first(Some(3_600_000), 3_600_000).await, [None, sweep]);
        // Nor one by which it was looked for duties.
        assert_eq!(first(None, 3_600_000).await, [sweep, sweep]);
    }

    #[tokio::test]
    async fn a_cluster_whose_agents_are_back_hurries_no_other_to_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let clusters = [("hpc-cluster-1", Some(0)), ("hpc-cluster-2", Some(600_000))];
        let mut driver = taken_up(dir.path(), &clusters).await;
        let now = clock::steady();
        let mut swept = Vec::new();
        for after in [0, 15_000, 30_000, BACK_MS + 1_000] {
            let job = driver.next_job(clock::now_ms(), now.after(after)).await.unwrap();
            let (kind, cluster) = job.unwrap();
            assert_eq!(kind, Kind::Sweep);
            swept.push(cluster.unwrap().to_string());
        }
        let [back, away] = ["hpc-cluster-1", "hpc-cluster-2"];
        assert_eq!(swept, [back, back, back, away]);
    }
}
