//! The chain's duties: which is due, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hpc_chain::code::Verdict;
use hpc_chain::settle::BatchId;
use hpc_schema::id::ClusterId;

use super::super::apart::may_be_its_fault;
use super::super::rota::Duty;
use super::super::{duty, queue};
use super::Driver;
use crate::clock::{self, Steady};
use crate::events;
use crate::registry::Node;
use crate::store::StoreError;

/// While a report is longer on its way into the database no cluster is swept. [`queue::is_just_accepted`] counts its ten seconds
/// from the request's arrival, the backlog only from the journal's sync: what is left is for a sync that is slow.
const MOST_BEHIND: Duration = Duration::from_secs(2);

impl Driver {
    /// The duty whose turn it is, if one is due.
    pub(super) async fn next_duty(&mut self, now: Steady) -> Result<Option<Duty>, StoreError> {
        let sweeps = self.sweeps(now).await?;
        let free = sweeps.iter().filter(|(_, free)| **free).map(|(c, _)| c.clone());
        let mut due: BTreeSet<Duty> = free.map(Duty::Sweep).collect();
        // What only waits for a report, for agents or the database is needed still, and what was learnt of it stays.
        let mut needed: BTreeSet<Duty> = sweeps.into_keys().map(Duty::Sweep).collect();
        if self.prune_due().await? {
            due.insert(Duty::Prune);
            needed.insert(Duty::Prune);
        }
        for over in self.rota.keep(&needed) {
            self.duty_taken(&over);
        }
        Ok(self.rota.next(&due, now))
    }

    /// The clusters that may be swept now, of [`Self::sweeps`].
    pub(in crate::settle) async fn sweeps_due(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        let free = |(cluster, free)| if free { Some(cluster) } else { None };
        let sweeps = self.sweeps(clock::steady()).await?;
        Ok(sweeps.into_iter().filter_map(free).collect())
    }

    /// The clusters that a sweep would change something in, and whether it would pass over no report that is on its way, nor over
    /// agents that are about to come back.
    async fn sweeps(&self, now: Steady) -> Result<BTreeMap<ClusterId, bool>, StoreError> {
        let (params, tip) = (self.registry.params(), self.registry.tip().time);
        let stepping = self.registry.those(|n| duty::may_step(n, &params, tip)).await;
        if stepping.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut held = queue::unsettled(&self.store).await?;
        let now_ms = clock::now_ms();
        // As they are now: a report that came since, and is not in the database yet, is known of here.
        let again = |n: &Arc<Node>| self.registry.node(&n.cluster_id, &n.node_id);
        let stepping: Vec<_> = stepping.iter().filter_map(again).collect();
        let accepted = stepping.iter().filter(|n| queue::is_just_accepted(n, now_ms));
        held.extend(accepted.map(|n| (n.cluster_id.clone(), n.node_id.clone())));
        let mut sweeps = duty::sweeps(&stepping, &held, &params, tip);
        if self.backlog.behind() > MOST_BEHIND {
            sweeps.values_mut().for_each(|free| *free = false);
        }
        for (cluster, free) in &mut sweeps {
            *free &= !self.away.waits_for(cluster, now);
        }
        Ok(sweeps)
    }

    /// Whether a node on record has been deregistered for so long that the contract removes it.
    pub(in crate::settle) async fn prune_due(&self) -> Result<bool, StoreError> {
        let now = self.registry.tip().time;
        let gone = self.registry.those(Node::is_deregistered).await;
        let since = events::deregistered(&self.store, &gone, now).await?;
        let retention = self.registry.params().retention;
        Ok(duty::prune_due(&since, retention, &self.signers.address, now))
    }

    /// The duty that a transaction of this process does; none: it is of reports or registrations.
    pub(super) fn duty_of(&self, batch: BatchId) -> Option<Duty> {
        let (_, kind, cluster) = self.job.as_ref().filter(|(of, ..)| *of == batch)?;
        Duty::of(*kind, cluster.as_ref())
    }

    /// A duty's transaction was refused, by an endpoint or in a block: others go before it, and it may have to be smaller.
    pub(super) fn duty_refused(&mut self, duty: &Duty, verdict: &Verdict, bytes: u64) {
        // Of gas it is given more first.
        let once_more = *verdict == Verdict::OutOfGas && !self.rota.is_short_of_gas(duty);
        self.rota.refused(duty, verdict, bytes, clock::steady());
        if may_be_its_fault(verdict) && !once_more {
            self.put_off(duty, verdict.remedy());
        }
    }

    /// A duty is not taken as it is: it lets others pass.
    pub(in crate::settle) fn put_off(&mut self, duty: &Duty, why: &str) {
        let again = self.rota.put_off(duty, clock::steady());
        tracing::warn!(%duty, "a duty is not taken; others go before it: {why}");
        if again {
            let message = format!("the {duty} is not taken, others go before it: {why}");
            self.health
                .raise_of("transactions_refused", &duty.to_string(), message);
        }
    }

    /// Nothing is wrong with a duty any more.
    pub(super) fn duty_taken(&self, duty: &Duty) {
        self.health.clear_of("transactions_refused", &duty.to_string());
    }
}

#[cfg(test)]
mod tests {

    use hpc_schema::time::UnixSeconds;

    use super::super::tests::driver;
    use super::*;
    use crate::registry::scene::view;
    use crate::registry::{Tip, Whose};
    use crate::spool::Backlog;

    /// A driver of whose clusters each has a silent node.
    async fn silent(dir: &std::path::Path, clusters: &[&str]) -> Driver {
        let d = driver(dir).await;
        for cluster in clusters {
            let cluster = cluster.parse().unwrap();
            d.registry.set_node(&cluster, view(), 1, UnixSeconds(0));
        }
        d.registry.set_tip(Tip {
            height: 9,
            time: UnixSeconds(2_000),
            latency_ms: None,
        });
        d
    }

    fn sweep(cluster: &str) -> Duty {
        Duty::Sweep(cluster.parse().unwrap())
    }

    #[tokio::test]
    async fn every_cluster_is_swept_in_its_turn_also_where_the_first_keeps_failing() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = silent(dir.path(), &["hpc-cluster-1", "hpc-cluster-2"]).await;
        let (first, second) = (sweep("hpc-cluster-1"), sweep("hpc-cluster-2"));
        let alarms = |d: &Driver| d.health.troubles().len();
        let now = clock::steady();
        assert_eq!(d.next_duty(now).await.unwrap(), Some(first.clone()));
        d.put_off(&first, "refused");
        assert_eq!(alarms(&d), 0, "once is no alarm");
        assert_eq!(d.next_duty(now).await.unwrap(), Some(second.clone()));
        assert_eq!(d.next_duty(now).await.unwrap(), Some(second.clone()));
        d.put_off(&first, "refused");
        assert_eq!(alarms(&d), 1);
        // It has nothing to sweep any more.
        let cluster = "hpc-cluster-1".parse().unwrap();
        d.registry.remove_node(&cluster, &"node-a".parse().unwrap());
        assert_eq!(d.next_duty(now).await.unwrap(), Some(second));
        assert_eq!(alarms(&d), 0);
    }

    #[tokio::test]
    async fn a_sweep_that_only_waits_keeps_its_pause_and_its_alarm() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = silent(dir.path(), &["hpc-cluster-1"]).await;
        let duty = sweep("hpc-cluster-1");
        let now = clock::steady();
        d.put_off(&duty, "refused");
        d.put_off(&duty, "refused");
        assert_eq!(d.health.troubles().len(), 1);
        // The database is behind; then a report is on its way.
        d.backlog = Backlog::stuck_for(MOST_BEHIND + Duration::from_secs(1));
        assert_eq!(d.next_duty(now).await.unwrap(), None);
        d.backlog = Backlog::default();
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-a".parse().unwrap());
        let from = std::net::Ipv4Addr::LOCALHOST.into();
        d.registry
            .accepted(Whose::named(&cluster, &node), 1, 2, clock::now_ms(), from);
        assert!(d.sweeps_due().await.unwrap().is_empty());
        assert_eq!(d.next_duty(now).await.unwrap(), None);
        assert_eq!(d.health.troubles().len(), 1);
        assert!(d.rota.put_off(&duty, now), "it is known");
    }

    #[tokio::test]
    async fn no_sweep_is_due_while_the_database_is_behind_what_was_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = silent(dir.path(), &["hpc-cluster-1"]).await;
        d.backlog = Backlog::stuck_for(MOST_BEHIND + Duration::from_secs(1));
        assert!(d.sweeps_due().await.unwrap().is_empty());
        assert_eq!(d.next_duty(clock::steady()).await.unwrap(), None);
        d.backlog = Backlog::stuck_for(Duration::from_secs(1));
        assert_eq!(d.sweeps_due().await.unwrap().len(), 1, "a moment is usual");
    }
}
