//! After an outage of the gateway its agents are waited for before anybody counts as silent.

use std::collections::BTreeMap;
use std::sync::Arc;

use hpc_schema::id::ClusterId;

use crate::clock::Steady;
use crate::registry::{Node, Registry};

/// Agents that were turned away come again within 30 s; their reports are in the store a moment later, and no sweep goes past
/// those.
const BACK_MS: u64 = 45_000;
/// A clock that is wrong for less keeps no agent out: it comes again.
const KEPT_OUT_MS: u64 = 30_000;

/// The clusters whose agents have not had the time to come back.
#[derive(Debug)]
pub(super) struct Away {
    /// When each was heard last before, UNIX milliseconds; once it has begun, those that are waited for.
    heard: BTreeMap<ClusterId, u64>,
    /// None: it has not begun, and every cluster is waited for.
    until: Option<Steady>,
    /// Since when the clock is wrong, once it has begun.
    wrong_since: Option<Steady>,
}

impl Away {
    /// As they were heard until now, where settlement is taken up or the clock is found wrong. One of which no heartbeat is on
    /// record is not waited for.
    pub(super) async fn of(registry: &Registry) -> Self {
        let mut heard: BTreeMap<ClusterId, u64> = BTreeMap::new();
        let see = |node: &Arc<Node>| {
            let last = heard.entry(node.cluster_id.clone()).or_default();
            *last = node.received_at.max(*last);
        };
        registry.each(see).await;
        heard.retain(|_, at| *at > 0);
        Self {
            heard,
            until: None,
            wrong_since: None,
        }
    }

    /// Settlement goes on, by a clock that is right: from then on those are waited for of which no heartbeat of any node was
    /// received for half of the time after which one counts as silent (seconds). Other clusters say nothing of one, for they
    /// may be back before settlement is.
    pub(super) fn waits_from(&mut self, now_ms: u64, now: Steady, timeout: u32) {
        if self.until.is_some() {
            return;
        }
        let half_ms = u64::from(timeout).saturating_mul(1_000) / 2;
        // A time still to come is of a clock that was ahead.
        self.heard.retain(|_, at| now_ms.abs_diff(*at) > half_ms);
        self.until = Some(now.after(BACK_MS));
    }

    /// Whether the clock has been wrong since settlement last went on, for so long that agents are to be waited for anew. One
    /// that is wrong every few blocks puts no sweep off for good.
    pub(super) fn is_due_anew(&mut self, wrong: bool, now: Steady) -> bool {
        if !wrong || self.until.is_none() {
            self.wrong_since = None;
            return false;
        }
        now.since(*self.wrong_since.get_or_insert(now)) >= KEPT_OUT_MS
    }

    /// Whether this one's agents are waited for.
    pub(super) fn waits_for(&self, cluster: &ClusterId, now: Steady) -> bool {
        self.until
            .is_none_or(|until| now < until && self.heard.contains_key(cluster))
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
    use crate::registry::scene::view;
    use crate::registry::{Tip, Whose};

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
                registry.accepted(Whose::named(&cluster, &id), epoch, 1, now - silent, from);
            }
        }
        registry.set_tip(Tip {
            height: 9,
            time: UnixSeconds(2_000),
            latency_ms: None,
        });
        let mut driver = Driver::resume(parts).await.unwrap();
        driver.feed(head(9, 0)).await.unwrap();
        driver
    }

    /// A block by which the clock is so far ahead.
    fn head(height: u64, ahead_ms: u64) -> Input {
        Input::Head {
            endpoint: EndpointId(0),
            height,
            block_time_ms: clock::now_ms() - ahead_ms,
        }
    }

    /// What it does so long after this.
    async fn does(driver: &mut Driver, (now_ms, now): (u64, Steady), after_ms: u64) -> Option<Kind> {
        let job = driver.next_job(now_ms + after_ms, now.after(after_ms)).await;
        job.unwrap().map(|(kind, _)| kind)
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
    async fn agents_that_a_wrong_clock_has_turned_away_are_waited_for_once_it_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = taken_up(dir.path(), &[("hpc-cluster-1", Some(360_000))]).await;
        let now = (clock::now_ms(), clock::steady());
        // As at the start, and again after settlement has gone on.
        for (height, from) in [(10, 0), (12, 400_000)] {
            driver.feed(head(height, 600_000)).await.unwrap();
            for after in [from, from + KEPT_OUT_MS] {
                driver.look_away(now.1.after(after)).await;
            }
            assert_eq!(does(&mut driver, now, from + BACK_MS + 1_000).await, None);
            driver.feed(head(height + 1, 0)).await.unwrap();
            let right = from + 2 * BACK_MS;
            assert_eq!(does(&mut driver, now, right).await, None);
            assert_eq!(does(&mut driver, now, right + BACK_MS - 15_000).await, None);
            assert_eq!(
                does(&mut driver, now, right + BACK_MS + 1_000).await,
                Some(Kind::Sweep)
            );
        }
    }

    #[tokio::test]
    async fn a_clock_that_is_wrong_every_few_blocks_puts_no_sweep_off_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = taken_up(dir.path(), &[("hpc-cluster-1", Some(360_000))]).await;
        let now = (clock::now_ms(), clock::steady());
        let mut swept = None;
        for block in 0..20_u64 {
            let (wrong, after) = (block % 2 == 0, block * 6_000);
            let ahead = if wrong { 600_000 } else { 0 };
            driver.feed(head(10 + block, ahead)).await.unwrap();
            driver.look_away(now.1.after(after)).await;
            let kind = does(&mut driver, now, after).await;
            assert!(!wrong || kind.is_none());
            swept = swept.or(kind.map(|kind| (kind, after)));
        }
        // With the first block by which the clock is right after the time that began with the first such.
        assert_eq!(swept, Some((Kind::Sweep, 54_000)));
    }

    #[tokio::test]
    async fn whether_agents_are_waited_for_is_told_by_the_clock_once_it_is_right() {
        let registry = Registry::new("chain-1", "contract");
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), view());
        let (id, from) = (node.node_id.clone(), Ipv4Addr::LOCALHOST.into());
        registry.set_node(&cluster, node, 1, UnixSeconds(0));
        let heard = 1_800_000_000_000;
        registry.accepted(Whose::named(&cluster, &id), 1, 2, heard, from);
        let (now, most) = (Steady(1), 60_000);
        // That heartbeat came in time, long ago, or by a clock that was ahead.
        for (now_ms, waits) in [
            (heard + most, false),
            (heard + most + 1, true),
            (heard - most - 1, true),
        ] {
            let mut away = Away::of(&registry).await;
            assert!(away.waits_for(&cluster, now.after(3_600_000)), "not right yet");
            away.waits_from(now_ms, now, 120);
            assert_eq!(away.waits_for(&cluster, now), waits);
            // Once: it does not begin anew with each look.
            away.waits_from(now_ms, now.after(BACK_MS), 120);
            assert!(!away.waits_for(&cluster, now.after(BACK_MS)));
        }
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
