use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
use super::{Composed, SignError};

/// Pages that one sweep visits.
const SWEEP_PAGES: u32 = 64;

impl Driver {
    pub(super) async fn compose_sweep(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        let Some((_, _, Some(cluster_id))) = self.job.clone() else {
            return Ok(None);
        };
        // Since it was found due a report may have come that saves a node from it.
        let due = self.sweep_due().await.map_err(ComposeError::from)?;
        if due.as_ref() != Some(&cluster_id) {
            tracing::info!(cluster = %cluster_id, "no sweep: a report of a node that it would step has come");
            return Ok(None);
        }
        let sweep = ExecuteMsg::Sweep {
            cluster_id: Some(cluster_id),
            limit: Some(SWEEP_PAGES),
        };
        self.compose_upkeep(request, &sweep).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use hpc_chain::settle::BatchId;
    use hpc_schema::id::ClusterId;
    use hpc_schema::node::NodeState;
    use hpc_schema::registry::RelayView;
    use hpc_schema::time::UnixSeconds;

    use super::super::super::driver::tests::driver;
    use super::super::super::store::Kind;
    use super::*;
    use crate::identity::Seed;
    use crate::registry::Tip;
    use crate::spool::{Accept, Spool};

    #[tokio::test]
    async fn no_sweep_is_signed_while_a_report_of_a_node_that_it_would_step_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = driver(dir.path()).await;
        let cluster: ClusterId = "hpc-cluster-1".parse().unwrap();
        let view = RelayView {
            node_id: "node-a".parse().unwrap(),
            page: 0,
            slot: 0,
            epoch: 1,
            sequence: 1,
            agent_pubkey: *Seed::from_bytes(&[1; 32]).unwrap().public(),
            section_digest: "00".repeat(16),
            recorded_state: NodeState::Active,
            state: NodeState::Active,
            last_heartbeat: UnixSeconds(1_000),
            offline_since: None,
            drain: None,
        };
        d.registry.set_node(&cluster, view, 1, UnixSeconds(0));
        d.registry.set_tip(Tip {
            height: 9,
            time: UnixSeconds(2_000),
            latency_ms: None,
        });
        assert_eq!(
            d.sweep_due().await.unwrap(),
            Some(cluster.clone()),
            "when it was planned"
        );
        d.job = Some((BatchId(1), Kind::Sweep, Some(cluster.clone())));
        let (spool, task) = Spool::start(d.store.clone());
        let report = Accept {
            cluster_id: cluster,
            node_id: "node-a".parse().unwrap(),
            epoch: 1,
            sequence: 2,
            report: [1; 70],
            signature: [2; 64],
            section: vec![],
            section_digest: [0; 16],
            received_at: 1,
            full: None,
        };
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
