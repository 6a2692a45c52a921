//! What an idle key does next.

use hpc_chain::settle::{Condition, Input};
use hpc_schema::id::ClusterId;

use super::super::plan::{self, Decision, Limits, plan};
use super::super::queue;
use super::super::rota::Duty;
use super::super::sizing::usual_for_reports;
use super::super::store::{self, Kind};
use super::{Driver, DriverError};
use crate::clock::{self, Steady};
use crate::fault;
use crate::store::StoreError;

/// Whether a sweep or a prune is needed is asked at most this often.
const DUTIES_EVERY_MS: u64 = 10_000;
/// A look at the duties that is overdue for so long goes before the next reports.
const OVERDUE_MS: u64 = 30_000;
/// Part of the interval between two looks at the queue that only arrivals bring about: most of them replace what waits
/// already, and a look reads all of it.
const LOOK_PART: u64 = 60;

impl Driver {
    /// Looks for something to do for an idle key.
    pub(super) async fn take_up(&mut self) -> Result<(), DriverError> {
        let now = clock::now_ms();
        let next = self.next_job(now, clock::steady()).await?;
        // It holds a copy of what waits, which nobody needs where others go first.
        if !matches!(next, Some((Kind::Reports, _))) {
            self.looked = None;
        }
        let Some((kind, cluster)) = next else {
            return Ok(());
        };
        let mut tx = self.store.begin().await?;
        let batch = store::open_batch(&mut tx, &self.signers.name, kind, now).await?;
        tx.commit().await.map_err(StoreError::from)?;
        self.last = Some(kind);
        self.job = Some((batch, kind, cluster));
        fault::point("settle.submitted");
        self.feed(Input::Submit { batch }).await
    }

    /// By both clocks: what is on record has the time of the one that may be set, waits go by the other.
    pub(super) async fn next_job(
        &mut self,
        now_ms: u64,
        now: Steady,
    ) -> Result<Option<(Kind, Option<ClusterId>)>, DriverError> {
        if self.state.condition() != Condition::Live {
            return Ok(None);
        }
        let timeout = self.registry.params().heartbeat_timeout;
        self.away.waits_from(now_ms, now, timeout);
        // Many nodes have a batch due whenever the key is idle: sweeps and prunes would never have their turn.
        if self.signers.duties && are_overdue(self.last, self.duties_at, now) {
            let next = self.look_for_duty(now).await?;
            if next.is_some() {
                return Ok(next);
            }
        }
        let register = self.signers.duties && self.registrations_wait(now).await?;
        let report = self.reports_due(now_ms, now).await?;
        // A thousand new nodes must not keep the others' reports waiting until they are too old.
        if register && !(report && self.last == Some(Kind::Register)) {
            return Ok(Some((Kind::Register, None)));
        }
        if report {
            return Ok(Some((Kind::Reports, None)));
        }
        if self.signers.duties && now >= self.duties_at {
            return self.look_for_duty(now).await;
        }
        Ok(None)
    }

    async fn look_for_duty(&mut self, now: Steady) -> Result<Option<(Kind, Option<ClusterId>)>, DriverError> {
        self.duties_at = now.after(DUTIES_EVERY_MS);
        Ok(self.next_duty(now).await?.map(Duty::into_job))
    }

    async fn registrations_wait(&self, now: Steady) -> Result<bool, StoreError> {
        let mut conn = self.store.reader().acquire().await?;
        // One more than those that let others pass.
        let look = u32::try_from(self.aside.len().saturating_add(1)).unwrap_or(u32::MAX);
        let queued = crate::enrol::queued(&mut conn, clock::now(), look).await?;
        Ok(queued.iter().any(|r| !self.aside.holds(&r.id, now)))
    }

    /// Nodes of which no report waits any more need let nobody pass.
    fn forget_apart(&mut self, waits: &queue::Queue) {
        if self.apart.is_empty() {
            return;
        }
        let waiting = waits.nodes();
        for node in self.apart.retain(|n| waiting.contains(n)) {
            self.report_taken(&node);
        }
    }

    /// Whether a batch of reports is due. The queue is read only at the planner's own deadline, or when enough reports
    /// have come to close a batch before it.
    async fn reports_due(&mut self, now_ms: u64, now: Steady) -> Result<bool, StoreError> {
        if now < self.look_at {
            if !self.wake.is_due() {
                return Ok(false);
            }
            let next = self.looked_at.after(self.limits().interval_ms / LOOK_PART);
            if now < next {
                self.look_at = self.look_at.min(next);
                return Ok(false);
            }
        }
        self.looked_at = now;
        self.wake.looks();
        let limits = self.limits();
        let waits = queue::read(
            &self.store,
            &self.registry,
            &self.backlog,
            limits.max_size,
            now_ms,
        )
        .await?;
        self.forget_apart(&waits);
        let free = waits
            .without(&self.claims.others(&self.signers.name))
            .past(&self.apart, now);
        let missing = limits.max_size.saturating_sub(free.waiting.len());
        let more = missing.max(plan::WORTH_WRITING.min(limits.max_size));
        self.wake.expect(u64::try_from(more).unwrap_or(u64::MAX));
        // A report that comes after this look is due after a part of the interval at the earliest, or as a state is to lapse.
        let latest = now_ms.saturating_add((limits.interval_ms / plan::EARLIEST_PART).max(1));
        let latest = free.next_lapse.map_or(latest, |at| latest.min(at));
        let until = match plan(&free.waiting, &limits, now_ms) {
            Decision::Send(_) => {
                self.look_at = now;
                self.looked = Some((clock::now_ms(), free));
                return Ok(true);
            }
            Decision::Wait { until } => until.clamp(now_ms.saturating_add(1), latest),
            Decision::Idle => latest,
        };
        self.look_at = now.after(until.saturating_sub(now_ms));
        Ok(false)
    }

    /// The planner's bounds now.
    pub(in crate::settle) fn limits(&self) -> Limits {
        let live = self.live.get();
        let batch = &live.batch;
        let most = usize::try_from(self.registry.params().batch_limit).unwrap_or(usize::MAX);
        Limits {
            max_size: usize::try_from(batch.max_size).unwrap_or(usize::MAX),
            interval_ms: u64::try_from(batch.submit_interval.duration().as_millis()).unwrap_or(u64::MAX),
            batch_limit: self.sizing.items(most),
            max_tx_bytes: self.sizing.bytes(u64::from(batch.max_tx_bytes)),
            max_gas: batch.max_gas,
            gas: self.fit.report_gas(self.sizing.adjustment(usual_for_reports())),
        }
    }
}

/// Whether a duty goes before reports that may be due: one, then it is the reports' turn again.
fn are_overdue(last: Option<Kind>, duties_at: Steady, now: Steady) -> bool {
    last == Some(Kind::Reports) && now.since(duties_at) >= OVERDUE_MS
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use hpc_schema::time::UnixSeconds;

    use super::super::tests::driver;
    use super::*;
    use crate::registry::scene::view;
    use crate::spool::{Accept, Spool};

    #[test]
    fn a_duty_goes_before_reports_that_flow_steadily_once_it_is_long_overdue_and_one_at_a_time() {
        let at = Steady(100_000);
        let late = at.after(OVERDUE_MS);
        assert!(are_overdue(Some(Kind::Reports), at, late));
        assert!(!are_overdue(Some(Kind::Reports), at, at.after(OVERDUE_MS - 1)));
        for last in [None, Some(Kind::Register), Some(Kind::Sweep), Some(Kind::Prune)] {
            assert!(!are_overdue(last, at, late), "{last:?}");
        }
    }

    /// The time of [`Accept`]'s report of ones, milliseconds.
    const NOW: u64 = 0x0101_0101 * 1_000;

    /// A report of the node of [`knowing`] with this number, accepted at that time.
    async fn accepts(d: &Driver, sequence: u32, at_ms: u64) {
        let of = ("hpc-cluster-1".parse().unwrap(), view().node_id);
        let (spool, task) = Spool::start(d.store.clone(), None, Arc::default());
        let report = Accept::new(of, (1, sequence), ([1; 70], [2; 64]), at_ms);
        assert!(spool.accept(report).await.unwrap().accepted);
        drop(spool);
        task.await.unwrap();
    }

    /// A driver that knows one node.
    async fn knowing(dir: &Path) -> Driver {
        let d = driver(dir).await;
        let cluster = "hpc-cluster-1".parse().unwrap();
        d.registry.set_node(&cluster, view(), 1, UnixSeconds(0));
        d
    }

    #[tokio::test]
    async fn after_the_clock_was_put_back_reports_go_when_they_are_due_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = knowing(dir.path()).await;
        let (at, interval) = (clock::steady(), d.limits().interval_ms);
        // The clock is an hour ahead.
        assert!(!d.reports_due(NOW + 3_600_000, at).await.unwrap());
        accepts(&d, 2, NOW).await;
        assert!(
            !d.reports_due(NOW, at.after(1)).await.unwrap(),
            "it has just looked"
        );
        assert!(d.reports_due(NOW + interval, at.after(interval)).await.unwrap());
    }

    #[tokio::test]
    async fn a_report_that_came_while_the_clock_was_ahead_is_due_once_it_is_right() {
        // As much as the clocks of two gateways may differ it waits.
        for (ahead_ms, due) in [(250_000, true), (61_000, true), (60_000, false)] {
            let dir = tempfile::tempdir().unwrap();
            let mut d = knowing(dir.path()).await;
            // The newer one waits since the other's time.
            accepts(&d, 2, NOW + ahead_ms).await;
            accepts(&d, 3, NOW).await;
            assert_eq!(
                d.reports_due(NOW, clock::steady()).await.unwrap(),
                due,
                "{ahead_ms}"
            );
        }
    }
}
