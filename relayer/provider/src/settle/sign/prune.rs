use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
use super::super::fit::Load;
use super::super::rota::Duty;
use super::{Composed, SignError};

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
        let nodes = self.registry.nodes();
        let gone = nodes.iter().filter(|n| n.is_deregistered()).count();
        let gone = u64::try_from(gone).unwrap_or(u64::MAX);
        let carries = |limit| Load::Prune {
            nodes: gone.min(limit),
        };
        self.compose_upkeep(request, &Duty::Prune, PRUNE_NODES, prune, carries)
            .await
    }
}
