//! What the operator is told: conditions, alarms, gauges.

use hpc_chain::code::Verdict;
use hpc_chain::settle::{Alarm, Condition};

use super::Driver;
use crate::ops::Metrics;
use crate::registry::Registry;
use crate::store::{Store, StoreError};
use crate::{clock, spool};

impl Driver {
    pub(super) fn report_condition(&self) {
        let (unreachable, halted, off) = match self.state.condition() {
            Condition::Live => (None, None, None),
            Condition::Starting => (Some("no block has been seen; check chain.rpc"), None, None),
            Condition::Halted if self.heads.reachable() => (
                None,
                Some("the chain makes no blocks; reports wait and nothing expires"),
                None,
            ),
            Condition::Halted => (Some("no endpoint of chain.rpc answers; reports wait"), None, None),
            Condition::CatchingUp => (
                None,
                None,
                Some("the newest block's time is more than a minute from this clock; check NTP and the node"),
            ),
        };
        let gone = (!self.heads.reachable()).then_some("no endpoint of chain.rpc answers; reports wait");
        self.health
            .set("chain_unreachable", unreachable.or(gone).map(str::to_owned));
        self.health.set("chain_halted", halted.map(str::to_owned));
        self.health.set("block_time_off", off.map(str::to_owned));
    }

    pub(super) fn alarm(&self, alarm: &Alarm) {
        match alarm {
            Alarm::Refused {
                verdict: Verdict::InsufficientFunds,
                log,
                ..
            } => {
                let address = &self.signers.address;
                self.health
                    .raise("insufficient_funds", format!("send tokens to {address}: {log}"));
            }
            Alarm::Refused {
                verdict, log, code, ..
            } => {
                self.health.raise(
                    "transactions_refused",
                    format!("code {code}: {log}; {}", verdict.remedy()),
                );
            }
            Alarm::AccountUnknown => {
                let address = &self.signers.address;
                self.health.raise(
                    "account_unknown",
                    format!("the chain does not know {address}; send tokens to it"),
                );
            }
            Alarm::ForeignTransaction { sequence } => tracing::error!(
                sequence,
                "another process signs with the key {}; use one process per key",
                self.signers.name
            ),
            other => tracing::warn!(alarm = ?other, "settlement"),
        }
    }

    /// Gauges of the queue.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn measure(store: &Store, registry: &Registry, metrics: &Metrics) -> Result<(), StoreError> {
        let depth = spool::depth(store.reader()).await?;
        metrics.waiting.set(depth.waiting);
        metrics.bound.set(depth.bound);
        let age = depth
            .oldest
            .map_or(0, |since| clock::now_ms().saturating_sub(since) / 1000);
        metrics.oldest_unsettled_seconds.set(age);
        metrics
            .nodes
            .set(u64::try_from(registry.nodes().len()).unwrap_or(u64::MAX));
        Ok(())
    }
}
