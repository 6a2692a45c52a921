use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
use super::super::duty::pages;
use super::super::fit::Load;
use super::super::rota::Duty;
use super::{Composed, SignError};
use crate::registry::Node;

/// Nodes that one prune removes at most.
const PRUNE_NODES: usize = 32;

impl Driver {
    pub(super) async fn compose_prune(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        // Another gateway may have done it since.
        if !self.prune_due().await.map_err(ComposeError::from)? {
            return Ok(None);
        }
        let prune = |limit| ExecuteMsg::Prune { limit: Some(limit) };
        let gone = self.registry.those(Node::is_deregistered).await;
        let pages = pages(gone.iter());
        // The contract removes the oldest of all clusters, whoever asks: no more of them than are known of here, so that what
        // is signed suffices for them.
        let most = gone.len().clamp(1, PRUNE_NODES);
        let carries = |limit: u64| Load::Prune {
            pages: pages.clamp(1, limit.max(1)),
            nodes: limit,
        };
        self.compose_upkeep(request, &Duty::Prune, most, prune, carries)
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hpc_chain::registry::RegistryClient;
    use hpc_chain::settle::BatchId;
    use hpc_schema::node::NodeState;
    use hpc_schema::registry::RelayView;
    use hpc_schema::time::UnixSeconds;
    use serde_json::Value;

    use super::super::super::driver::tests::driver;
    use super::super::super::fit::Fit;
    use super::*;
    use crate::fake_chain::{Answer, chain};
    use crate::registry::Tip;
    use crate::registry::scene::view;

    #[tokio::test]
    async fn a_prune_asks_for_no_more_nodes_than_are_known_to_be_gone_and_has_gas_for_as_many_pages() {
        let dir = tempfile::tempdir().unwrap();
        let mut d = driver(dir.path()).await;
        let cluster = "hpc-cluster-1".parse().unwrap();
        for (name, page, state) in [
            ("node-a", 0, NodeState::Deregistered),
            ("node-b", 0, NodeState::Deregistered),
            ("node-c", 3, NodeState::Deregistered),
            ("node-d", 4, NodeState::Active),
        ] {
            let node = RelayView {
                node_id: name.parse().unwrap(),
                page,
                recorded_state: state,
                state,
                ..view()
            };
            d.registry.set_node(&cluster, node, 1, UnixSeconds(0));
        }
        let at = |height, time| Tip {
            height,
            time: UnixSeconds(time),
            latency_ms: None,
        };
        // They are seen to be gone, and long after that they are due.
        d.registry.set_tip(at(9, 1_000));
        assert!(!d.prune_due().await.unwrap());
        d.registry.set_tip(at(10, 1_000_000_000));
        let limits = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&limits);
        let fake = chain(Arc::default(), move |asked: &Value| {
            seen.lock()
                .unwrap()
                .push(asked["prune"]["limit"].as_u64().unwrap());
            Answer::NoService
        });
        d.client = RegistryClient::new(fake.await, "wasm1contract");
        let request = SignRequest {
            batch: BatchId(1),
            account_number: 1,
            sequence: 1,
            timeout_height: 20,
        };
        let composed = d.compose_prune(request).await.unwrap().unwrap();
        assert_eq!(*limits.lock().unwrap(), [3]);
        assert_eq!(composed.load, Load::Prune { pages: 2, nodes: 3 });
        let apart = Load::Prune { pages: 3, nodes: 3 };
        assert_eq!(composed.gas, Fit::default().gas(apart));
    }
}
