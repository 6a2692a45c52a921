//! After an outage of the gateway its agents are waited for before anybody counts as silent.

use crate::registry::Registry;

/// Agents that were turned away come again within 30 s; their reports are in the store a moment later, and no sweep goes past
/// those.
const BACK_MS: u64 = 45_000;

/// When a key that takes up settlement looks for duties first: once the agents have had the time to come back, where no
/// heartbeat of any node was received for half of the time after which one counts as silent. A store that knows of none says
/// nothing.
pub(super) async fn duties_at(registry: &Registry, now_ms: u64) -> u64 {
    let mut heard = 0;
    registry.each(|node| heard = node.received_at.max(heard)).await;
    let timeout_ms = u64::from(registry.params().heartbeat_timeout).saturating_mul(1_000);
    if heard > 0 && now_ms.saturating_sub(heard) > timeout_ms / 2 {
        now_ms.saturating_add(BACK_MS)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hpc_chain::settle::{EndpointId, Input};
    use hpc_schema::time::UnixSeconds;

    use super::super::tests::parts;
    use super::super::{Driver, Kind};
    use super::*;
    use crate::clock;
    use crate::registry::Tip;
    use crate::registry::scene::view;

    /// What a driver does first and once agents are back, that takes up settlement so long after the only node was heard.
    async fn first(silent_ms: Option<u64>) -> [Option<Kind>; 2] {
        let dir = tempfile::tempdir().unwrap();
        let parts = parts(dir.path()).await;
        let registry = &parts.shared.registry;
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), view());
        let (id, epoch, from) = (node.node_id.clone(), node.epoch, Ipv4Addr::LOCALHOST.into());
        registry.set_node(&cluster, node, 1, UnixSeconds(0));
        let now = clock::now_ms();
        if let Some(silent) = silent_ms {
            registry.accepted(&cluster, &id, epoch, 2, now - silent, from);
        }
        // By the chain's time it is silent.
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
        let mut does = [None, None];
        for (kind, at) in does.iter_mut().zip([now, now + BACK_MS + 1_000]) {
            *kind = driver.next_job(at).await.unwrap().map(|(kind, _)| kind);
        }
        does
    }

    #[tokio::test]
    async fn after_an_outage_nobody_is_swept_before_agents_can_be_back() {
        let sweep = Some(Kind::Sweep);
        assert_eq!(first(Some(360_000)).await, [None, sweep]);
        assert_eq!(first(Some(61_000)).await, [None, sweep]);
        assert_eq!(
            first(Some(20_000)).await,
            [sweep, sweep],
            "others were heard meanwhile"
        );
        assert_eq!(first(None).await, [sweep, sweep]);
    }
}
