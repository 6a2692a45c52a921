use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;
use hpc_schema::report::batch::PAGE_SLOTS;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
use super::super::duty::{Extent, extent};
use super::super::fit::Load;
use super::super::rota::Duty;
use super::{Composed, SignError};

/// Pages that one sweep visits at most.
const SWEEP_PAGES: usize = 64;

impl Driver {
    pub(super) async fn compose_sweep(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        let Some((_, _, Some(cluster_id))) = self.job.clone() else {
            return Ok(None);
        };
        let registry = &self.registry;
        let now = registry.tip().time;
        let nodes = registry.those(|n| n.cluster_id == cluster_id).await;
        let found = extent(&nodes, &registry.params(), now);
        // Last: since it was found due a report may have come that saves a node from it.
        let due = self.sweeps_due().await.map_err(ComposeError::from)?;
        if !due.contains(&cluster_id) {
            tracing::info!(cluster = %cluster_id, "no sweep: a report of a node that it would step has come or is on its way");
            return Ok(None);
        }
        let sweep = |limit| ExecuteMsg::Sweep {
            cluster_id: Some(cluster_id.clone()),
            limit: Some(limit),
        };
        let carries = |limit: u64| {
            let nodes = limit.saturating_mul(u64::from(PAGE_SLOTS));
            Load::Sweep(Extent {
                pages: found.pages.min(limit),
                stepped_pages: found.stepped_pages.min(limit),
                steps: found.steps.min(nodes),
                deregistered: found.deregistered.min(nodes),
            })
        };
        let duty = Duty::Sweep(cluster_id.clone());
        self.compose_upkeep(request, &duty, SWEEP_PAGES, sweep, carries)
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hpc_chain::settle::BatchId;
    use hpc_schema::id::ClusterId;
    use hpc_schema::time::UnixSeconds;

    use super::super::super::driver::tests::driver;
    use super::super::super::store::Kind;
    use super::*;
    use crate::registry::scene::view;
    use crate::registry::{Tip, Whose};
    use crate::spool::{Accept, Spool};

    /// A driver that is about to sweep `node-a`.
    async fn sweeping(dir: &std::path::Path) -> (Driver, ClusterId) {
        let d = driver(dir).await;
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        d.registry.set_node(&cluster, view(), 1, UnixSeconds(0));
        d.registry.set_tip(Tip {
            height: 9,
            time: UnixSeconds(2_000),
            latency_ms: None,
        });
        assert!(
            d.sweeps_due().await.unwrap().contains(&cluster),
            "when it was planned"
        );
        (d, cluster)
    }

    #[tokio::test]
    async fn no_sweep_is_due_for_a_node_of_which_a_report_was_accepted_a_moment_ago() {
        let dir = tempfile::tempdir().unwrap();
        let (d, cluster) = sweeping(dir.path()).await;
        let accepted = |sequence, at| {
            let node = "node-a".parse().unwrap();
            let from = std::net::Ipv4Addr::LOCALHOST.into();
            d.registry
                .accepted(Whose::named(&cluster, &node), 1, sequence, at, from);
        };
        accepted(2, crate::clock::now_ms().saturating_sub(60_000));
        assert!(
            !d.sweeps_due().await.unwrap().is_empty(),
            "one of before has ended"
        );
        accepted(3, crate::clock::now_ms());
        assert!(d.sweeps_due().await.unwrap().is_empty());
        accepted(4, crate::clock::now_ms() + 250_000);
        assert!(
            !d.sweeps_due().await.unwrap().is_empty(),
            "the clock was ahead then"
        );
        accepted(5, crate::clock::now_ms());
        assert!(d.sweeps_due().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn no_sweep_is_signed_while_a_report_of_a_node_that_it_would_step_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let (mut d, cluster) = sweeping(dir.path()).await;
        d.job = Some((BatchId(1), Kind::Sweep, Some(cluster.clone())));
        let (spool, task) = Spool::start(d.store.clone(), None, Arc::default());
        let of = (cluster, "node-a".parse().unwrap());
        let report = Accept::new(of, (1, 2), ([1; 70], [2; 64]), 1);
        assert!(spool.accept(report).await.unwrap().accepted);
        let request = SignRequest {
            batch: BatchId(1),
            account_number: 1,
            sequence: 1,
            timeout_height: 20,
        };
        // Nobody is asked to simulate it: the endpoint does not exist.
        assert!(d.compose_sweep(request).await.unwrap().is_none());
        drop(spool);
        task.await.unwrap();
    }
}
