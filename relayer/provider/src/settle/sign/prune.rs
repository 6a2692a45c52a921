use hpc_chain::settle::SignRequest;
use hpc_schema::registry::ExecuteMsg;

use super::super::compose::ComposeError;
use super::super::driver::Driver;
use super::{Composed, SignError};

/// Nodes that one prune removes.
const PRUNE_NODES: u32 = 32;

impl Driver {
    pub(super) async fn compose_prune(
        &mut self,
        request: SignRequest,
    ) -> Result<Option<Composed>, SignError> {
        // Another gateway may have done it since.
        if !self.prune_due().await.map_err(ComposeError::from)? {
            return Ok(None);
        }
        let prune = ExecuteMsg::Prune {
            limit: Some(PRUNE_NODES),
        };
        self.compose_upkeep(request, &prune).await.map(Some)
    }
}
