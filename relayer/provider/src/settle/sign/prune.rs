use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
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
        self.compose_upkeep(request, &Duty::Prune, PRUNE_NODES, prune)
            .await
    }
}
