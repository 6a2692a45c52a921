//! What an idle key does next.

use hpc_chain::settle::{Condition, Input};
use hpc_schema::id::ClusterId;
use hpc_schema::time::UnixSeconds;

use super::super::plan::{Decision, Limits, plan};
use super::super::store::{self, Kind};
use super::super::{duty, queue};
use super::{Driver, DriverError};
use crate::store::StoreError;
use crate::{clock, fault};

/// A cluster is swept at most this often.
const SWEEP_EVERY_MS: u64 = 10_000;

impl Driver {
    /// Looks for something to do for an idle key.
    pub(super) async fn take_up(&mut self) -> Result<(), DriverError> {
        let now = clock::now_ms();
        let Some((kind, cluster)) = self.next_job(now).await? else {
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

    async fn next_job(&mut self, now: u64) -> Result<Option<(Kind, Option<ClusterId>)>, DriverError> {
        if self.state.condition() != Condition::Live {
            return Ok(None);
        }
        let mut conn = self.store.reader().acquire().await.map_err(StoreError::from)?;
        let register = !crate::enrol::queued(&mut conn, 1).await?.is_empty();
        drop(conn);
        let waits = queue::read(&self.store, &self.registry, now).await?;
        let report = matches!(plan(&waits.waiting, &self.limits(), now), Decision::Send(_));
        // A thousand new nodes must not keep the others' reports waiting until they are too old.
        if register && !(report && self.last == Some(Kind::Register)) {
            return Ok(Some((Kind::Register, None)));
        }
        if report {
            return Ok(Some((Kind::Reports, None)));
        }
        if now.saturating_sub(self.swept_at) >= SWEEP_EVERY_MS {
            let held = queue::unsettled(&self.store).await?;
            let tip: UnixSeconds = self.registry.tip().time;
            let due = duty::sweep_due(&self.registry.nodes(), &held, &self.registry.params(), tip);
            if let Some(cluster) = due {
                self.swept_at = now;
                return Ok(Some((Kind::Sweep, Some(cluster))));
            }
        }
        Ok(None)
    }

    /// The planner's bounds now.
    pub(in crate::settle) fn limits(&self) -> Limits {
        let batch = &self.config.batch;
        let most = usize::try_from(self.registry.params().batch_limit).unwrap_or(usize::MAX);
        Limits {
            max_size: usize::try_from(batch.max_size).unwrap_or(usize::MAX),
            interval_ms: u64::try_from(batch.submit_interval.duration().as_millis()).unwrap_or(u64::MAX),
            batch_limit: (most >> self.shrink.min(31)).max(1),
            max_tx_bytes: u64::from(batch.max_tx_bytes),
            max_gas: batch.max_gas,
        }
    }
}
